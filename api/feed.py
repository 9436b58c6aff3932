"""Turns that clients of this process follow: live events and, failing those, the database.

One channel per turn is shared by all its listeners. Once in a while the turns' statuses are read
in one statement: listeners of ended turns are told, and lost streams of open turns are opened
again. Nothing here knows HTTP.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Protocol

import structlog

from api.sse import Frame
from shared import redis_keys
from shared.database import Database
from shared.event_log import TOP_EPOCH, parse_published
from shared.event_writer import DELIVERY_ERRORS, EventStreams
from shared.ids import TurnId
from shared.repositories import turns
from shared.subscriptions import Subscriptions
from shared.turn_state import OPEN_STATUSES

log = structlog.get_logger()

# Pause between two looks at the statuses of all followed turns.
CHECK_S = 5.0


class Listener(Protocol):
    """One who follows a turn. All calls are made on the event loop and return at once."""

    def hear(self, frame: Frame) -> None:
        """Take an event that was just published."""

    def catch_up(self) -> None:
        """Read what may have been missed."""

    def end(self) -> None:
        """Learn that the turn has ended, by the database."""

    def close(self) -> None:
        """Stop following: the process leaves, or the turn is gone."""


class TurnFeed:
    """The listeners of one turn and the channel they share."""

    def __init__(self, turn_id: TurnId) -> None:
        self.turn_id = turn_id
        self.listeners: set[Listener] = set()
        self.is_deserted = asyncio.Event()
        # Whether anything was published since the last look.
        self.has_heard = False

    def hear(self, payload: bytes | None) -> None:
        """Pass on what the channel says; None: it is subscribed, and forgot what came before."""
        if payload is None:
            self.catch_up()
            return
        self.has_heard = True
        frame = Frame(parse_published(payload))
        for listener in tuple(self.listeners):
            listener.hear(frame)

    def catch_up(self) -> None:
        """Let all listeners read the stream again."""
        for listener in tuple(self.listeners):
            listener.catch_up()

    def end(self) -> None:
        """Tell all listeners that the turn has ended."""
        for listener in tuple(self.listeners):
            listener.end()

    def close(self) -> None:
        """Let all listeners go."""
        for listener in tuple(self.listeners):
            listener.close()


class Feeds:
    """The feeds of this process. `run` must be running; `close` lets all listeners go."""

    def __init__(
        self,
        streams: EventStreams,
        subscriptions: Subscriptions,
        database: Database,
        *,
        check_s: float = CHECK_S,
    ) -> None:
        self.streams = streams
        self.database = database
        self._subscriptions = subscriptions
        self._check_s = check_s
        self._feeds: dict[TurnId, TurnFeed] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_feeds = asyncio.Event()
        self._is_closed = False

    @contextlib.contextmanager
    def attach(self, turn_id: TurnId, listener: Listener) -> Iterator[None]:
        """Let the listener follow the turn. It is told to catch up once the channel is heard."""
        feed = self._feeds.get(turn_id) or self._open(turn_id)
        feed.listeners.add(listener)
        if self._is_closed:
            listener.close()
        try:
            yield
        finally:
            feed.listeners.discard(listener)
            if not feed.listeners and self._feeds.get(turn_id) is feed:
                del self._feeds[turn_id]
                feed.is_deserted.set()

    def count_listeners(self) -> int:
        """Return how many listeners are attached."""
        return sum(len(feed.listeners) for feed in self._feeds.values())

    async def is_open(self, turn_id: TurnId) -> bool:
        """Tell whether the turn exists and has not ended. Raises StorageError."""
        statuses = await self.database.read(
            lambda connection: turns.get_statuses(connection, [turn_id]),
        )
        return statuses.get(turn_id) in OPEN_STATUSES

    async def run(self) -> None:
        """Look after the followed turns until cancelled."""
        while True:
            await self._has_feeds.wait()
            await asyncio.sleep(self._check_s)
            if not self._feeds:
                self._has_feeds.clear()
                continue
            try:
                await self._check()
            except DELIVERY_ERRORS as error:
                log.warning("feeds_not_checked", error=type(error).__name__)

    def close(self) -> None:
        """Let all present and future listeners go."""
        self._is_closed = True
        for feed in tuple(self._feeds.values()):
            feed.close()

    async def finish(self) -> None:
        """Wait until all channels are let go. Call it after `close`."""
        for feed in self._feeds.values():
            feed.is_deserted.set()
        await asyncio.gather(*self._tasks)

    def _open(self, turn_id: TurnId) -> TurnFeed:
        feed = self._feeds[turn_id] = TurnFeed(turn_id)
        # In a task of its own: a client's disconnect must not cut off the unsubscribing.
        task = asyncio.create_task(self._listen(feed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._has_feeds.set()
        return feed

    async def _listen(self, feed: TurnFeed) -> None:
        channel = redis_keys.event_channel(feed.turn_id)
        async with self._subscriptions.listen(channel, feed.hear):
            await feed.is_deserted.wait()

    async def _check(self) -> None:
        feeds = tuple(self._feeds.values())
        turn_ids = [feed.turn_id for feed in feeds]
        statuses = await self.database.read(
            lambda connection: turns.get_statuses(connection, turn_ids),
        )
        for feed in feeds:
            status = statuses.get(feed.turn_id)
            if status is None:
                feed.close()
            elif status in OPEN_STATUSES:
                await self._check_open(feed)
            else:
                feed.end()

    async def _check_open(self, feed: TurnFeed) -> None:
        # A stream that was just heard is there.
        has_heard, feed.has_heard = feed.has_heard, False
        if not has_heard:
            await revive(self.streams, feed.turn_id)
            # Also for those whose last read failed.
            feed.catch_up()


async def revive(streams: EventStreams, turn_id: TurnId) -> None:
    """Open a stream again that was lost, and complete an opening that somebody left.

    Raises RedisError, OSError or StorageError.
    """
    answer = await streams.log.append(turn_id, TOP_EPOCH, ())
    if answer.word == "opening":
        await streams.give_snapshot(turn_id, answer.top)
    elif answer.word == "lost":
        owner = await streams.get_owner(turn_id)
        if owner is not None:
            await streams.reopen(turn_id, owner)
