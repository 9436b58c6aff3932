"""One call of the model while it is served, and those who want to know of it."""

import asyncio
import enum
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from demo.protocol import ChatRequest
from demo.refusal import Refusal
from demo.reply import Usage


class Outcome(enum.StrEnum):
    """How a call ended."""

    # The whole answer goes to the connection. Noted just before its last bytes, so that whoever
    # has them finds it noted.
    FINISHED = "finished"
    # The client went away first.
    DISCONNECTED = "disconnected"
    # The answer failed as its reply said.
    FAULT = "fault"
    # The server gave it up.
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What came in: the body's bytes and the headers, with names in lower case."""

    raw: bytes
    headers: Mapping[str, str]
    # On the monotonic clock.
    received_at_s: float = field(default_factory=time.monotonic)


class Call:
    """A request that was accepted. Belongs to the server's event loop."""

    def __init__(self, received: Received, request: ChatRequest, cached_tokens: int) -> None:
        self.received = received
        self.request = request
        self.cached_tokens = cached_tokens
        # Set at the end, usage only if the answer was finished.
        self.outcome: Outcome | None = None
        self.ended_at_s: float | None = None
        self.usage: Usage | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, task: asyncio.Task[None]) -> None:
        """Say which task writes the answer."""
        self._task = task

    def abort(self) -> None:
        """Give the call up: its connection closes."""
        if self._task is not None:
            self._task.cancel()

    def end(self, outcome: Outcome, usage: Usage | None) -> None:
        """Note the end."""
        self.usage = usage
        self.ended_at_s = time.monotonic()
        # Last: other threads take it as the sign that the rest is there.
        self.outcome = outcome


class Observer:
    """Hears of every request, and may hold answers. This one does neither."""

    def refused(self, received: Received, refusal: Refusal) -> None:
        """Hear of a request that was refused."""

    def begun(self, call: Call) -> None:
        """Hear of a call before its reply is chosen."""

    async def before_chunk(self, call: Call, sent: int) -> None:
        """Return when the next chunk may be sent. sent: chunks so far; 0 is before any byte."""

    async def stalled(self, call: Call) -> None:
        """Return when a stalled answer may go on."""
        del call
        await asyncio.Event().wait()

    def ended(self, call: Call) -> None:
        """Hear of a call's end, however it came."""
