"""The summary that stands in a request for the messages it replaced."""

from collections.abc import Sequence

from workers.context.messages import Message

HEADING = "[Conversation summary]"


def summary_message(text: str, *, position: int | None = None) -> Message:
    """Return a summary as a message. position: of the last stored message it stands for."""
    return Message(
        role="system",
        content=f"{HEADING}\n{text}",
        origin="summary",
        position=position,
    )


def is_summary(message: Message) -> bool:
    """Whether the message is a summary: of ours, or kept by a caller as plain text."""
    if message.origin == "summary":
        return True
    return message.role == "system" and message.text.startswith(HEADING)


def summary_text(messages: Sequence[Message]) -> str:
    """Return the texts of the summaries among messages; "" if there is none."""
    texts = (message.text.removeprefix(HEADING).strip() for message in messages)
    return "\n\n".join(
        text for text, message in zip(texts, messages, strict=True) if is_summary(message)
    )
