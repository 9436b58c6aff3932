"""The command `turnmill`: starts the API and the workers as processes, imports neither."""
