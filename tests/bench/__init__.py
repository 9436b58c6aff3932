"""Measurements, as ratios within one run. `make bench` prints them; nothing here is a test."""
