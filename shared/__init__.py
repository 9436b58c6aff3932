"""What both sides of the broker agree on: settings, rows, events, keys and task names."""
