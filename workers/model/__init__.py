"""The model layer: which model, with which limits, and one streamed call to it."""
