"""Measurements. `make bench` prints them and fails where one misses its limit; no tests."""
