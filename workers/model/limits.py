"""What a provider lets all workers together ask of one model."""

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one model; None: there is none."""

    # Calls that run at once.
    max_in_flight: int | None = None
    # In any 60 seconds; tokens of requests and answers together.
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    @property
    def are_set(self) -> bool:
        """Whether there is any."""
        return self != NO_LIMITS


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What a call's place in the line for its model depends on."""

    # Whom the call is for: all shares get on equally, however many calls each has.
    share: str = ""
    # Whose place is kept while it is parked.
    place: str = ""
    # Estimate of the call's tokens.
    tokens: int = 0
    # Stands still while the call is in line.
    timeout: asyncio.Timeout | None = None


NO_TICKET = Ticket()
