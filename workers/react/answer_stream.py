"""The answer on its way to readers: deltas, coalesced, and taken back when it starts over."""

import asyncio

from shared.events import Answer, Event
from shared.text import storable
from workers.runtime.progress import Progress
from workers.runtime.turn_run import TurnRun

# The first delta goes out at once, later ones at most this often.
COALESCE_S = 0.03


class AnswerStream:
    """Publishes one answer. Its text so far lives in progress, for snapshots and notes."""

    def __init__(self, run: TurnRun, progress: Progress) -> None:
        self._run = run
        self._progress = progress
        self._sent_chars = 0
        self._has_started = False
        self._flushed_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    @property
    def text(self) -> str:
        """The answer since the last restart."""
        return self._progress.answer_text

    async def add(self, text: str) -> None:
        """Add text to the answer."""
        self._progress.answer_text += storable(text)
        loop = asyncio.get_running_loop()
        due_in_s = self._flushed_at + COALESCE_S - loop.time()
        if due_in_s <= 0:
            await self._flush()
        elif self._timer is None:
            self._timer = loop.call_later(due_in_s, self._flush_later)

    async def restart(self, reason: str) -> None:
        """Take back what was published, if anything was."""
        await self.settle()
        had_started, self._has_started = self._has_started, False
        self._progress.answer_text = ""
        self._sent_chars = 0
        self._flushed_at = 0.0
        if had_started:
            await self._run.emit(Answer(status="restart", reason=reason))

    async def finish(self) -> tuple[Event, ...]:
        """Return the events that are left to publish when the answer stands."""
        await self.settle()
        return (*self._take_delta(), Answer(status="done", content=self.text))

    def _flush_later(self) -> None:
        self._timer = None
        self._flushing = asyncio.ensure_future(self._flush())

    async def _flush(self) -> None:
        self._flushed_at = asyncio.get_running_loop().time()
        await self._run.emit(*self._take_delta())

    def _take_delta(self) -> tuple[Event, ...]:
        offset, content = self._sent_chars, self.text[self._sent_chars :]
        if not content:
            return ()
        self._sent_chars += len(content)
        delta = Answer(status="delta", content=content, offset=offset)
        if self._has_started:
            return (delta,)
        self._has_started = True
        return (Answer(status="start"), delta)

    async def settle(self) -> None:
        """Leave no flush behind: none to come, and none under way."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._flushing is not None:
            await self._flushing
            self._flushing = None
