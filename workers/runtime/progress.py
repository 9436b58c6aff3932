"""What an attempt has so far, outside the journal: the answer being written, the usage."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared.events import Answer, Event
from workers.model.values import Purpose, Usage

# Counts by purpose, as `PurposeUsage.describe` returns them.
JournaledUsage = dict[Purpose, dict[str, int]]


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

    def merge(self, counts: Mapping[str, int]) -> None:
        """Add counts as `describe` returns them."""
        self.calls += counts["calls"]
        self.input_tokens += counts["input_tokens"]
        self.output_tokens += counts["output_tokens"]
        self.cached_tokens += counts["cached_tokens"]
        self.estimated_calls += counts["estimated_calls"]

    def describe(self) -> dict[str, int]:
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
    # Since it was last taken for the journal.
    _unjournaled: dict[Purpose, PurposeUsage] = field(default_factory=dict)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the attempt began."""
        return time.monotonic() - self.started_at

    def count(self, purpose: Purpose, usage: Usage) -> None:
        """Count one model call."""
        for counted in (self.by_purpose, self._unjournaled):
            counted.setdefault(purpose, PurposeUsage()).add(usage)

    def take_usage(self) -> JournaledUsage:
        """Return what was used since this was last called, for the journal's next entry."""
        taken, self._unjournaled = self._unjournaled, {}
        return {purpose: counts.describe() for purpose, counts in taken.items()}

    def merge_usage(self, taken: JournaledUsage) -> None:
        """Count what an earlier attempt journaled."""
        for purpose, counts in taken.items():
            self.by_purpose.setdefault(purpose, PurposeUsage()).merge(counts)

    def usage(self) -> dict[str, object]:
        """Return the turn's usage as the API shows it. Compaction is included in the sums."""
        parts = self.by_purpose.values()
        compaction = self.by_purpose.get("compaction", PurposeUsage())
        return {
            "input_tokens": sum(part.input_tokens for part in parts),
            "output_tokens": sum(part.output_tokens for part in parts),
            "cached_tokens": sum(part.cached_tokens for part in parts),
            "compaction_tokens": compaction.input_tokens + compaction.output_tokens,
            "by_purpose": {purpose: part.describe() for purpose, part in self.by_purpose.items()},
        }

    def unfinished(self) -> Sequence[Event]:
        """Return the answer so far as an event that sets it."""
        if not self.answer_text:
            return ()
        return (Answer(status="delta", content=self.answer_text, offset=0),)
