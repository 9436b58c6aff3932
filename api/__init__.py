"""The HTTP edge: accepts turns, rings workers, streams events back."""
