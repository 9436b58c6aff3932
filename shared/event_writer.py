"""Appending a turn's events through whatever befalls its stream.

Publishing never fails a turn: if Redis is away, events are dropped, and the first append after
that opens a new epoch, whose snapshot holds all that was missed.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog
from redis.exceptions import RedisError

from shared.database import Database, StorageError
from shared.event_log import TOP_EPOCH, Append, EventLog
from shared.events import Event, Snapshot
from shared.ids import TurnId
from shared.outage import Outage
from shared.repositories import turns
from shared.repositories.turns import StreamOwner, TurnView
from shared.snapshot import read_picture

log = structlog.get_logger()

# What makes events undeliverable for now, and no more than that.
DELIVERY_ERRORS = (RedisError, OSError, StorageError)
# An append may meet an epoch being opened by somebody else, a loss, and a takeover; more in a
# row than this means that the stream is being fought over, and the next snapshot will do.
MAX_TRIES = 6
# After a failure Redis is left alone for a moment, so that a turn is not slowed down.
REST_S = 1.0


class EventStreams:
    """Opens epochs: marks one, then gives it a snapshot read after the mark."""

    def __init__(self, event_log: EventLog, database: Database) -> None:
        self.log = event_log
        self.outage = Outage("events")
        self._database = database

    async def open(self, turn_id: TurnId, epoch: int) -> None:
        """Open an epoch, or complete its opening, unless it or a later one is open."""
        answer = await self.log.open(turn_id, epoch)
        if answer.word == "opening":
            await self.give_snapshot(turn_id, answer.top)

    async def create(self, turn: TurnView) -> None:
        """Begin the stream of a turn that was just posted, if it has none yet.

        Nothing but the posting can have happened to a turn without a stream: its first claim
        would have begun one. Never fails the turn: that claim begins what is missing.
        """
        snapshot = Snapshot(
            status=turn.status,
            mode=turn.mode,
            attempt=turn.attempt,
            answer_so_far="",
            steps=[],
            injections=[],
            compactions=[],
            approvals=[],
        )
        try:
            await self.log.create(turn.id, turn.stream_epoch, snapshot)
        except DELIVERY_ERRORS as error:
            self.outage.begin(error)

    async def give_snapshot(self, turn_id: TurnId, epoch: int) -> None:
        """Append the snapshot that an opening epoch waits for.

        Read now, after the mark: whatever lower epochs said before it is in the database.
        """
        picture = await self._database.read(lambda connection: read_picture(connection, turn_id))
        if picture is not None:
            await self.log.append_snapshot(turn_id, epoch, picture.snapshot)

    async def reopen(self, turn_id: TurnId, seen: StreamOwner) -> StreamOwner | None:
        """Move the turn to a new epoch, unless somebody has since `seen`; return where it is.

        Opens nothing if the attempt has changed: then the stream is its new holder's.
        """
        owner = await self._database.write(
            lambda connection: turns.raise_stream_epoch(connection, turn_id, seen=seen),
        )
        if owner is not None and owner.attempt == seen.attempt:
            await self.open(turn_id, owner.epoch)
        return owner

    async def get_owner(self, turn_id: TurnId) -> StreamOwner | None:
        """Return the turn's epoch and attempt, or None if it is unknown."""
        return await self._database.read(
            lambda connection: turns.get_stream_owner(connection, turn_id),
        )


class GuestWriter:
    """Appends for those who hold no lease: at the top epoch, or not at all without a stream."""

    def __init__(self, streams: EventStreams, turn_id: TurnId) -> None:
        self._streams = streams
        self._turn_id = turn_id

    async def emit(self, *events: Event) -> None:
        """Append events in order, or drop them if they cannot be delivered."""
        try:
            answer = await self._streams.log.append(self._turn_id, TOP_EPOCH, events)
            if answer.word == "opening":
                await self._streams.give_snapshot(self._turn_id, answer.top)
                await self._streams.log.append(self._turn_id, TOP_EPOCH, events)
        except DELIVERY_ERRORS as error:
            self._streams.outage.begin(error)


class EventWriter:
    """Appends for the holder of a turn's lease.

    owner: epoch and attempt as the claim returned them.
    unfinished: returns events that restate what only the writer knows (the answer so far);
        they follow each snapshot of an epoch that the writer moves to.
    """

    def __init__(
        self,
        streams: EventStreams,
        turn_id: TurnId,
        owner: StreamOwner,
        unfinished: Callable[[], Sequence[Event]],
    ) -> None:
        self._streams = streams
        self._turn_id = turn_id
        self._owner = owner
        self._unfinished = unfinished
        self._order = asyncio.Lock()
        self._has_dropped = False
        self._has_lost_lease = False
        self._rest_until = 0.0

    async def emit(self, *events: Event) -> None:
        """Append events in order, or drop them if they cannot be delivered."""
        loop = asyncio.get_running_loop()
        async with self._order:
            if self._has_lost_lease or loop.time() < self._rest_until:
                self._has_dropped = True
                return
            try:
                await self._emit(list(events))
            except DELIVERY_ERRORS as error:
                self._has_dropped = True
                self._rest_until = loop.time() + REST_S
                self._streams.outage.begin(error)
            except asyncio.CancelledError:
                self._has_dropped = True  # whether they were appended is not known
                raise

    async def _emit(self, events: list[Event]) -> None:
        if self._has_dropped:
            await self._reopen()
            self._has_dropped = False
            events = [*self._unfinished(), *events]
        for _ in range(MAX_TRIES):
            if self._has_lost_lease:
                return
            answer = await self._streams.log.append(self._turn_id, self._owner.epoch, events)
            if answer.word in ("ok", "ended"):
                self._streams.outage.end()
                return
            if await self._make_room(answer):
                events = [*self._unfinished(), *events]
        log.warning("events_contended", turn_id=self._turn_id)
        self._has_dropped = True

    async def _make_room(self, answer: Append) -> bool:
        """Do what a refused append needs; tell whether the writer moved to another epoch."""
        if answer.word == "opening":
            await self._streams.give_snapshot(self._turn_id, answer.top)
            return False
        if answer.word == "ahead":
            await self._streams.open(self._turn_id, self._owner.epoch)
            return False
        if answer.word == "stale":
            self._adopt(await self._streams.get_owner(self._turn_id))
            return True
        await self._reopen()
        return True

    async def _reopen(self) -> None:
        self._adopt(await self._streams.reopen(self._turn_id, self._owner))

    def _adopt(self, owner: StreamOwner | None) -> None:
        if owner is None or owner.attempt != self._owner.attempt:
            self._has_lost_lease = True
        else:
            self._owner = owner
