"""Work that is finished even if the client that caused it has gone."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

from shared.errors import TurnmillError

log = structlog.get_logger()

T = TypeVar("T")

# Longest that a response waits for what follows its commit; it goes on all the same.
FOLLOW_UP_S = 2.0


class Background:
    """Tasks of this process that outlive their request."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def complete(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what work returns; if the caller is cancelled, work goes on."""
        return await asyncio.shield(self._start(work))

    async def follow_up(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what follows a commit, and let the caller go on before its end if it takes long.

        A failure is logged: whatever follows a commit is made up for by the sweep.
        """
        await asyncio.wait({self._start(_logged(work))}, timeout=FOLLOW_UP_S)

    async def finish(self) -> None:
        """Wait until all work is done."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except TurnmillError as error:
        log.warning("follow_up_failed", code=error.code, error=type(error).__name__)
