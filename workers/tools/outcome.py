"""What a tool call came to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    """What a tool call came to."""

    # The result, or a sentence that says what went wrong; storable, and cut with a mark.
    content: str
    is_error: bool
    elapsed_s: float
