"""What the model is told. No time and no ids: the prefix must stay the same between turns."""

SYSTEM = """\
You are a careful assistant. Answer in the language of the user's message.
Use a tool when it gives a more reliable answer than you could give yourself, and only then.
When you have what you need, answer directly and briefly, without speaking about your tools."""

SYNTHESIS = """\
You are a careful assistant. Below stands a user's request and a record of the work done on it.
Write the final answer to the request from that record.
Write in the language of the request. Use what the tools returned; where they failed, say plainly
what could not be found out. Do not mention the record, the tools or this instruction."""

# A message that the user sent while the turn was running.
INTERRUPT_MARK = "[The user interrupts with a new message:]"

ITERATION_LIMIT_DRAFT = (
    "The work stopped at its limit of {limit} model calls before it was finished."
)

OUTCOME_UNKNOWN = (
    "The outcome of this call is unknown: the worker that ran it was lost, and the tool is not"
    " safe to repeat. Find out what happened before you call it again."
)


def system_prompt(base: str, instructions: str | None) -> str:
    """Return a system prompt with the turn's own instructions after it."""
    return f"{base}\n\n{instructions}" if instructions else base
