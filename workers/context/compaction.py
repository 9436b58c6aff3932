"""What a compaction did, for the event that tells the user of it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """A list of messages that was made smaller. Tokens are estimates."""

    layer: Literal["guard", "db_memory"]
    # What the messages are for, such as react_iteration or general.
    hint: str
    # Purpose of the request; `history` for a load.
    purpose: str
    original_messages: int
    kept_messages: int
    # Tool schemas included.
    tokens_before: int
    tokens_after: int
    method: Literal["truncate"] = "truncate"
    # Injected messages that lost their pin.
    unpinned: int = 0
    # What was done and why, as a sentence.
    reason: str = ""
