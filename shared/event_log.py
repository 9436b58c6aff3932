"""The event streams: appending, opening epochs and reading back.

A stream lives in Redis under one turn's id. Ids are `{epoch}-{n}`; an epoch begins with a
snapshot, so a reader that meets a new epoch needs nothing from the ones before it. The rules
are kept by one script, `event_log.lua`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from shared import redis_keys
from shared.errors import InvalidInputError
from shared.events import Event, Snapshot
from shared.ids import TurnId
from shared.settings import Settings

SCRIPT = (Path(__file__).parent / "event_log.lua").read_text(encoding="utf-8")
# A stream outlives its last event by this much, in case the turn is taken up again.
OPEN_TTL_S = 24 * 3600
CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 5.0
POOL_CONNECTIONS = 32
READ_BATCH = 1_000

# Epoch of a writer that holds no lease: it appends at the top epoch, whichever that is.
TOP_EPOCH = 0


class EventId(NamedTuple):
    """Id of an event; orders as the events do."""

    epoch: int
    seq: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.seq}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `{epoch}-{n}`. Raises InvalidInputError if it is none."""
        match = re.fullmatch(r"(\d{1,18})-(\d{1,18})", text)
        if match is None:
            raise InvalidInputError(
                f"{text[:40]!r} is not an event id: send the id of an event you received",
            )
        return cls(int(match[1]), int(match[2]))

    def is_followed_by(self, other: "EventId") -> bool:
        """Tell whether no event can lie between this one and the other."""
        if other.epoch == self.epoch:
            return other.seq == self.seq + 1
        return other.epoch > self.epoch and other.seq == 0


START = EventId(0, 0)


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as the stream keeps it; `data` is one line of JSON."""

    id: EventId
    name: str
    data: str


@dataclass(frozen=True, slots=True)
class Append:
    """What the script answered."""

    # ok, lost, stale, ahead, opening, exists or ended
    word: str
    # The highest epoch of the stream.
    top: int


def open_redis(settings: Settings) -> "Redis":
    """Return a client of the Redis that carries events. Connects on first use."""
    pool = BlockingConnectionPool.from_url(
        settings.events_url,
        max_connections=POOL_CONNECTIONS,
        timeout=ANSWER_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=ANSWER_TIMEOUT_S,
        socket_keepalive=True,
        health_check_interval=15,
        # A pooled connection may have died while it was idle: one more try, at once.
        retry=Retry(NoBackoff(), 1),
    )
    return Redis.from_pool(pool)


class EventLog:
    """The streams of all turns."""

    def __init__(self, redis: "Redis", settings: Settings) -> None:
        self._redis = redis
        self._script = redis.register_script(SCRIPT)
        self._final_ttl_s = settings.event_ttl_s

    async def append(self, turn_id: TurnId, epoch: int, events: Sequence[Event]) -> Append:
        """Append events in order, all or none. Raises RedisError if Redis fails."""
        return await self._run("append", turn_id, epoch, events)

    async def open(self, turn_id: TurnId, epoch: int) -> Append:
        """Mark an epoch as opening; from then on lower ones are refused."""
        return await self._run("open", turn_id, epoch)

    async def create(self, turn_id: TurnId, epoch: int, snapshot: Snapshot) -> Append:
        """Begin a stream with a snapshot, unless there is one."""
        return await self._run("create", turn_id, epoch, [snapshot])

    async def append_snapshot(self, turn_id: TurnId, epoch: int, snapshot: Snapshot) -> Append:
        """Give an opening epoch its snapshot, if it has none yet."""
        return await self._run("snapshot", turn_id, epoch, [snapshot])

    async def read(self, turn_id: TurnId, after: EventId) -> list[StoredEvent]:
        """Return up to READ_BATCH events after an id, in order."""
        rows = await self._redis.xrange(
            redis_keys.event_stream(turn_id),
            min=f"({after}" if after != START else "-",
            count=READ_BATCH,
        )
        return [_stored(row) for row in rows or ()]

    async def read_last(self, turn_id: TurnId) -> StoredEvent | None:
        """Return the last event of the stream, or None if there is no stream."""
        rows = await self._redis.xrevrange(redis_keys.event_stream(turn_id), count=1)
        return _stored(rows[0]) if rows else None

    async def is_lost(self, turn_id: TurnId) -> bool:
        """Tell whether the stream is missing or was kept by an earlier run of the server."""
        answer = await self.append(turn_id, TOP_EPOCH, ())
        return answer.word == "lost"

    async def _run(
        self,
        operation: str,
        turn_id: TurnId,
        epoch: int,
        events: Sequence[Event] = (),
    ) -> Append:
        keys = [redis_keys.event_stream(turn_id), redis_keys.event_meta(turn_id)]
        arguments: list[str | int] = [
            operation,
            redis_keys.event_channel(turn_id),
            epoch,
            OPEN_TTL_S,
            self._final_ttl_s,
        ]
        for event in events:
            arguments += [event.name, event.encode(turn_id), int(event.is_terminal)]
        answer = await self._script(keys=keys, args=arguments)
        return Append(word=answer[0].decode(), top=int(answer[1]))


def parse_published(payload: bytes) -> StoredEvent:
    """Read an event as its channel carries it."""
    identifier, name, data = payload.decode().split("\n", 2)
    return StoredEvent(EventId.parse(identifier), name, data)


def _stored(row: Any) -> StoredEvent:  # noqa: ANN401 - the client's type for rows is loose
    identifier, fields = row
    return StoredEvent(
        EventId.parse(identifier.decode()),
        fields[b"event"].decode(),
        fields[b"data"].decode(),
    )
