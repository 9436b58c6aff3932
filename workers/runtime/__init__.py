"""Durable execution: claim, lease, fence, journal, sweep, drain."""
