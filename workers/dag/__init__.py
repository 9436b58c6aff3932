"""Turns that are planned: steps that depend on each other, each a task of its own."""
