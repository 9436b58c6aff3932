"""Messages in units that must stay together: a round is one, any other message is one.

Nothing is repaired here: a result without its call stays a unit of its own.
"""

from collections.abc import Sequence

from workers.context.messages import Message

Unit = tuple[Message, ...]


def split_units(messages: Sequence[Message]) -> list[Unit]:
    """Group messages into units, order kept.

    messages: oldest first. An assistant message with tool calls and the results right after it
    make one unit (a round); joined, the units are the messages again.
    """
    units: list[Unit] = []
    open_ids: set[str | None] = set()
    for message in messages:
        if message.role == "tool" and message.tool_call_id in open_ids:
            units[-1] += (message,)
        else:
            units.append((message,))
            open_ids = {call.id for call in message.tool_calls}
    return units
