"""The ReAct loop: model calls with tools until an answer stands."""
