"""When a failed model call is made again: decided by the kind of its error, in this one place."""

import random
from dataclasses import dataclass

from shared.errors import ModelError, ModelStreamError
from shared.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often, and how long between two tries. Times are seconds."""

    max_retries: int
    # Longest pause before the first retry; it doubles with each.
    base_s: float
    # Longest pause of all.
    cap_s: float

    @classmethod
    def of(cls, settings: Settings) -> "Retry":
        """Return what the settings say."""
        return cls(
            max_retries=settings.llm_max_retries,
            base_s=settings.llm_retry_base_s,
            cap_s=settings.llm_retry_cap_s,
        )

    def pause_s(self, retries: int, error: ModelError) -> float | None:
        """Return how long to wait before the call is made again; None: it is not.

        retries: how often it was already. A provider that says when it wants to be asked again is
        asked then, unless that is more than the longest pause away.
        """
        is_broken = isinstance(error, ModelStreamError)  # whoever reads the answer decides
        if is_broken or retries >= self.max_retries or not error.may_retry:
            return None
        if error.retry_after_s is None:
            return self.jitter_s(retries)
        return error.retry_after_s if error.retry_after_s <= self.cap_s else None

    def gate_s(self, pause_s: float | None, error: ModelError) -> float:
        """Return how long nobody is to ask a provider that refused more requests.

        pause_s: before the call is made again; None: it is not.
        """
        if pause_s is not None:
            return pause_s
        return min(error.retry_after_s or self.base_s, self.cap_s)

    def jitter_s(self, retries: int) -> float:
        """Return a random pause: all who failed together shall not come back together."""
        return random.uniform(0, min(self.cap_s, self.base_s * 2**retries))  # noqa: S311
