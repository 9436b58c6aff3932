"""Pins: too many pinned messages would crowd out everything else."""

from collections.abc import Sequence
from dataclasses import replace

from workers.context.counter import ESTIMATE, TokenCounter
from workers.context.messages import Message


def pinned_messages(messages: Sequence[Message]) -> list[Message]:
    """Return the pinned messages; system messages stay anyway and are not among them."""
    return [message for message in messages if message.pinned and message.role != "system"]


def unpin_oldest(
    messages: Sequence[Message],
    max_pinned_tokens: int,
    counter: TokenCounter = ESTIMATE,
) -> tuple[Message, ...]:
    """Take the pin off injected messages, oldest first, until the pinned ones are small enough.

    messages: oldest first; not changed.
    The newest injected message keeps its pin, and so does all that is no injected message.
    """
    changed = list(messages)
    excess = counter.messages(pinned_messages(messages)) - max_pinned_tokens
    injected = [
        index
        for index, message in enumerate(messages)
        if message.pinned and message.origin == "injection"
    ]
    for index in injected[:-1]:
        if excess <= 0:
            break
        excess -= counter.message(messages[index])
        changed[index] = replace(messages[index], pinned=False)
    return tuple(changed)
