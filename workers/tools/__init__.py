"""Tools the model may call, their schemas and their execution."""
