"""The demo model: a scripted server that speaks the chat-completions protocol. Not an LLM."""
