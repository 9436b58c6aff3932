"""What an attempt has so far, outside the journal: the answer being written, the usage."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from shared.events import Answer, Event
from workers.model.values import Purpose, Usage


@dataclass(slots=True)
class PurposeUsage:
    """Tokens used for one purpose."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    # Calls whose provider reported nothing.
    estimated_calls: int = 0

    def add(self, usage: Usage) -> None:
        """Count one call."""
        self.calls += 1
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cached_tokens += usage.cached_tokens
        self.estimated_calls += usage.is_estimated

    def describe(self) -> dict[str, object]:
        """Return the counts as JSON."""
        return {
            "calls": self.calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cached_tokens": self.cached_tokens,
            "estimated_calls": self.estimated_calls,
        }


@dataclass(slots=True)
class Progress:
    """One attempt's progress; an earlier attempt's usage is added when the journal is folded."""

    answer_text: str = ""
    by_purpose: dict[Purpose, PurposeUsage] = field(default_factory=dict)
    started_at: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the attempt began."""
        return time.monotonic() - self.started_at

    def count(self, purpose: Purpose, usage: Usage) -> None:
        """Count one model call."""
        self.by_purpose.setdefault(purpose, PurposeUsage()).add(usage)

    def usage(self) -> dict[str, object]:
        """Return the turn's usage as the API shows it. Compaction is included in the sums."""
        parts = self.by_purpose.values()
        return {
            "input_tokens": sum(part.input_tokens for part in parts),
            "output_tokens": sum(part.output_tokens for part in parts),
            "cached_tokens": sum(part.cached_tokens for part in parts),
            "compaction_tokens": 0,
            "by_purpose": {purpose: part.describe() for purpose, part in self.by_purpose.items()},
        }

    def unfinished(self) -> Sequence[Event]:
        """Return the answer so far as an event that sets it."""
        if not self.answer_text:
            return ()
        return (Answer(status="delta", content=self.answer_text, offset=0),)
