"""The request that has the answer written once the loop's work is done."""

from collections.abc import Sequence
from dataclasses import replace

from workers.context.messages import Message, TextPart
from workers.context.summary import is_summary, summary_text
from workers.react.prompts import SYNTHESIS, system_prompt

# Most characters of one tool result in the record.
RESULT_CHARS = 2_000
CUT_MARK = "[Truncated]"


def synthesis_messages(
    instructions: str | None,
    history: Sequence[Message],
    query: Message,
    loop: Sequence[Message],
    draft: str,
) -> tuple[Message, ...]:
    """Return the messages of a synthesis: the conversation, then the request and the record.

    loop: the loop's messages after the query, injected ones among them.
    draft: the loop's own brief answer.
    """
    record = "\n".join(_describe(message) for message in loop)
    parts = query.content if isinstance(query.content, tuple) else ()
    images = [part for part in parts if not isinstance(part, TextPart)]
    # The record last: if the whole is too long, its end is what gets cut.
    text = f"Request:\n{query.text}\n\nBrief answer:\n{draft}\n\nRecord of the work:\n{record}"
    return (
        Message(
            role="system",
            content=system_prompt(SYNTHESIS, instructions),
            origin="instructions",
        ),
        *history,
        replace(query, content=(TextPart(text=text), *images) if images else text, pinned=True),
    )


def _describe(message: Message) -> str:
    if is_summary(message):
        return f"Summary of earlier work: {summary_text([message])}"
    if message.role == "tool":
        return f"Result: {_cut(message.text)}"
    if message.role == "user":
        return f"User: {message.text}"
    calls = [f"Call: {call.name}({call.arguments})" for call in message.tool_calls]
    return "\n".join(([f"Thought: {message.text}"] if message.text else []) + calls)


def _cut(text: str) -> str:
    if len(text) <= RESULT_CHARS:
        return text
    return text[: RESULT_CHARS - len(CUT_MARK)] + CUT_MARK
