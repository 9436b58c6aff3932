"""A lease as its holder sees it: what the store said last, and when to stop."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from shared.errors import Cancelled, HandedOver, LeaseLostError, Stop
from shared.turn_state import Fence, Inbox

T = TypeVar("T")

# A tool is not started so shortly before the lease may lapse.
MARGIN_S = 3.0


class Lease:
    """One claimed turn in this process. Belongs to the event loop.

    Work that may last runs under `run`, so that losing the lease, a cancel, the deadline or the
    end of a drain interrupts it; `check` is called wherever the turn could stop tidily.
    """

    def __init__(self, fence: Fence, *, lease_s: float, inbox: Inbox) -> None:
        self.fence = fence
        self.pending_injections = inbox.pending_injections
        self._lease_s = lease_s
        self._renewed_at = time.monotonic()
        self._is_draining = False
        self._stopped: asyncio.Future[Stop | LeaseLostError] = (
            asyncio.get_running_loop().create_future()
        )

    def note(self, inbox: Inbox, *, renewed_at: float) -> None:
        """Take in what a renewal or a fenced write returned.

        renewed_at: monotonic time when that statement was sent.
        """
        self._renewed_at = max(self._renewed_at, renewed_at)
        self.pending_injections = inbox.pending_injections
        if inbox.is_cancel_requested:
            self.stop(Cancelled())

    def stop(self, reason: Stop | LeaseLostError) -> None:
        """Interrupt the work. The first reason stands."""
        if not self._stopped.done():
            self._stopped.set_result(reason)

    def drain(self) -> None:
        """Let the turn be handed over at its next journal point."""
        self._is_draining = True

    @property
    def is_draining(self) -> bool:
        """Whether the turn is to be handed over at its next journal point."""
        return self._is_draining

    def check(self) -> None:
        """Raise the reason to stop, if there is one. Called at journal points."""
        self.check_stopped()
        if self._is_draining:
            raise HandedOver

    def check_stopped(self) -> None:
        """Raise the reason to stop at once, if there is one; a drain waits for a journal point."""
        if self._stopped.done():
            raise self._stopped.result()

    def check_before_tool(self) -> None:
        """Raise LeaseLostError if the lease may lapse before a tool that starts now is known.

        Tools that are on record as started do start, even in a drain.
        """
        self.check_stopped()
        margin_s = min(MARGIN_S, self._lease_s / 3)
        if time.monotonic() - self._renewed_at > self._lease_s - margin_s:
            raise LeaseLostError

    async def run(self, work: Coroutine[None, None, T]) -> T:
        """Run work until it is done or there is a reason to stop, which is raised."""
        task = asyncio.ensure_future(work)
        either: set[asyncio.Future[Any]] = {task, self._stopped}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if task.cancelled() and self._stopped.done():
            raise self._stopped.result()
        return task.result()
