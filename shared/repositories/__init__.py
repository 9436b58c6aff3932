"""Queries, and nothing else: functions of a `Connection` that neither begin nor commit."""
