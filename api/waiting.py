"""Holding an answer until a turn has ended."""

import asyncio

from api.feed import Feeds
from api.sse import Frame
from shared.ids import TurnId


class EndWaiter:
    """A listener that only wants to know when to look at the turn again."""

    def __init__(self) -> None:
        self._wake = asyncio.Event()
        self.is_closed = False

    def hear(self, frame: Frame) -> None:
        """Look again after the terminal event."""
        if frame.is_terminal:
            self._wake.set()

    def catch_up(self) -> None:
        """Look again: the terminal event may have been missed."""
        self._wake.set()

    def end(self) -> None:
        """Look again."""
        self._wake.set()

    def close(self) -> None:
        """Wait no longer."""
        self.is_closed = True
        self._wake.set()

    async def wait(self) -> None:
        """Wait until there is a reason to look again."""
        await self._wake.wait()
        self._wake.clear()


async def wait_for_end(feeds: Feeds, turn_id: TurnId, timeout_s: float) -> None:
    """Return when the turn has ended, after timeout_s, or when the process leaves.

    Raises StorageError.
    """
    waiter = EndWaiter()
    with feeds.attach(turn_id, waiter):
        try:
            async with asyncio.timeout(timeout_s):
                while not waiter.is_closed and await feeds.is_open(turn_id):
                    await waiter.wait()
        except TimeoutError:
            return
