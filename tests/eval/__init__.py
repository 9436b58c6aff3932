"""Evaluations against referees that nobody here wrote. `make eval-context` runs them; no tests."""
