"""Moments for values that need one."""

from datetime import UTC, datetime

SOME_TIME = datetime(2026, 1, 31, 12, tzinfo=UTC)
