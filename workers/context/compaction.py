"""What a compaction did: for the event that tells the user of it, and for what is kept of it."""

from dataclasses import dataclass
from typing import Literal

from workers.context.hints import Hint
from workers.context.llm_compact import Compacted
from workers.context.messages import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """A list of messages that was made smaller."""

    layer: Literal["guard", "db_memory"]
    # What the messages are for; it chose the summary's prompt.
    hint: Hint
    # Purpose of the request; `history` for a load.
    purpose: str
    original_messages: int
    kept_messages: int
    # As measured, tool schemas included; of a load, the history only.
    tokens_before: int
    tokens_after: int
    method: Literal["llm", "truncate"] = "truncate"
    # Injected messages that lost their pin.
    unpinned: int = 0
    # What was done and why, as a sentence.
    reason: str = ""
    # Position of the newest stored message that is gone: what a checkpoint covers.
    until_position: int | None = None
    # Indexes of the work's messages that are gone, counted from the query.
    replaced: tuple[int, ...] = ()
    # What stands for all that is gone; "" if it was left out.
    summary: str = ""


def newest_gone(given: tuple[Message, ...], compacted: Compacted) -> int | None:
    """Return the position of the newest stored message that a compaction took away."""
    positions = (given[index].position for index in compacted.replaced)
    return max((position for position in positions if position is not None), default=None)
