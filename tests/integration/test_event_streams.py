"""Event streams over a real Redis: epochs, losses, takeovers, and what a late writer may do."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest
from redis.asyncio import Redis
from sqlalchemy import Connection, update

from shared import redis_keys
from shared.admission import admit_turn
from shared.clock import now
from shared.database import Database, open_database
from shared.event_log import START, EventLog, StoredEvent, open_redis
from shared.event_writer import EventStreams, EventWriter, GuestWriter
from shared.events import Answer, Cancelled, Event, Snapshot, Status
from shared.ids import TurnId
from shared.repositories import turns
from shared.repositories.turns import ClaimedTurn, StreamOwner
from shared.settings import Settings
from shared.tables import Turn
from shared.turn_state import IfBusy
from tests.helpers.posting import new_turn
from tests.helpers.servers import RedisServer

RUNNING = Status(status="running", attempt=1)
SNAPSHOT = Snapshot(
    status="running",
    mode="react",
    attempt=1,
    answer_so_far="",
    steps=[],
    injections=[],
    compactions=[],
    approvals=[],
)


@dataclass
class World:
    """A store, a Redis and the streams between them."""

    database: Database
    redis: Redis
    streams: EventStreams

    async def post(self) -> TurnId:
        turn = new_turn()
        admission = await self.database.write(
            lambda connection: admit_turn(
                connection,
                turn,
                starts_conversation=True,
                if_busy=IfBusy.QUEUE,
            ),
        )
        await self.streams.create(admission.turn)
        return turn.id

    async def claim(self, turn_id: TurnId) -> ClaimedTurn:
        claimed = await self.database.write(
            lambda connection: turns.claim_turn(
                connection,
                turn_id,
                owner="worker",
                lease_s=60,
                turn_timeout_s=600,
            ),
        )
        assert claimed is not None
        return claimed

    async def lapse(self, turn_id: TurnId) -> None:
        def work(connection: Connection) -> None:
            late = update(Turn).where(Turn.id == turn_id).values(lease_until=now(-1.0))
            connection.execute(late)

        await self.database.write(work)

    def writer(self, claimed: ClaimedTurn, unfinished: Sequence[Event] = ()) -> EventWriter:
        owner = StreamOwner(epoch=claimed.stream_epoch, attempt=claimed.attempt)
        return EventWriter(self.streams, claimed.id, owner, lambda: unfinished)

    async def read(self, turn_id: TurnId) -> list[tuple[int, str]]:
        return [(event.id.epoch, event.name) for event in await self.events(turn_id)]

    async def events(self, turn_id: TurnId) -> list[StoredEvent]:
        return await self.streams.log.read(turn_id, START)


@pytest.fixture
async def world(settings: Settings) -> AsyncIterator[World]:
    database = open_database(settings)
    redis = open_redis(settings)
    yield World(database, redis, EventStreams(EventLog(redis, settings), database))
    await redis.aclose()
    await database.close()


async def test_posted_turn_has_a_stream_that_begins_with_a_snapshot(world: World) -> None:
    turn_id = await world.post()
    writer = world.writer(await world.claim(turn_id))

    await writer.emit(RUNNING)

    events = await world.events(turn_id)
    assert [(str(event.id), event.name) for event in events] == [
        ("1-0", "snapshot"),
        ("1-1", "status"),
    ]


async def test_takeover_opens_an_epoch_and_shuts_the_old_writer_out(world: World) -> None:
    turn_id = await world.post()
    old = world.writer(await world.claim(turn_id))
    await old.emit(RUNNING)
    await world.lapse(turn_id)
    new = world.writer(await world.claim(turn_id))

    await new.emit(RUNNING)
    await old.emit(Answer(status="delta", content="from the dead", offset=0))

    assert await world.read(turn_id) == [
        (1, "snapshot"),
        (1, "status"),
        (2, "snapshot"),
        (2, "status"),
    ]


async def test_old_writer_is_shut_out_even_before_the_new_one_wrote(world: World) -> None:
    turn_id = await world.post()
    old = world.writer(await world.claim(turn_id))
    await world.lapse(turn_id)
    new = world.writer(await world.claim(turn_id))

    await old.emit(Answer(status="delta", content="late", offset=0))
    await new.emit(RUNNING)

    last_epoch = [name for epoch, name in await world.read(turn_id) if epoch == 2]
    assert last_epoch == ["snapshot", "status"]


async def test_lost_stream_is_opened_anew_with_the_answer_so_far(world: World) -> None:
    turn_id = await world.post()
    so_far = [Answer(status="delta", content="half an ans", offset=0)]
    writer = world.writer(await world.claim(turn_id), so_far)
    await writer.emit(RUNNING)

    await world.redis.flushall()
    await writer.emit(Answer(status="delta", content="wer", offset=11))

    assert await world.read(turn_id) == [(2, "snapshot"), (2, "answer"), (2, "answer")]


async def test_reader_may_reopen_and_the_writer_follows(world: World) -> None:
    turn_id = await world.post()
    so_far = [Answer(status="delta", content="so far", offset=0)]
    writer = world.writer(await world.claim(turn_id), so_far)
    await writer.emit(RUNNING)
    await world.redis.flushall()

    owner = await world.streams.get_owner(turn_id)
    assert owner is not None
    await world.streams.reopen(turn_id, owner)
    await writer.emit(RUNNING)

    assert await world.read(turn_id) == [(2, "snapshot"), (2, "answer"), (2, "status")]


async def test_two_that_reopen_at_once_open_one_epoch(world: World) -> None:
    turn_id = await world.post()
    owner = await world.streams.get_owner(turn_id)
    assert owner is not None
    await world.redis.flushall()

    await world.streams.reopen(turn_id, owner)
    await world.streams.reopen(turn_id, owner)

    assert await world.read(turn_id) == [(2, "snapshot")]


async def test_epoch_whose_opener_died_is_completed_by_the_next_writer(world: World) -> None:
    turn_id = await world.post()
    claimed = await world.claim(turn_id)
    await world.lapse(turn_id)
    taken = await world.claim(turn_id)
    await world.streams.log.open(turn_id, taken.stream_epoch)

    await GuestWriter(world.streams, turn_id).emit(RUNNING)
    await world.writer(claimed).emit(Answer(status="delta", content="late", offset=0))

    assert await world.read(turn_id) == [(1, "snapshot"), (2, "snapshot"), (2, "status")]


async def test_guest_appends_nothing_where_there_is_no_stream(world: World) -> None:
    turn_id = await world.post()
    await world.redis.flushall()

    await GuestWriter(world.streams, turn_id).emit(RUNNING)

    assert await world.events(turn_id) == []
    assert not await world.redis.exists(redis_keys.event_meta(turn_id))


async def test_nothing_follows_the_terminal_event(world: World, settings: Settings) -> None:
    turn_id = await world.post()
    writer = world.writer(await world.claim(turn_id))

    await writer.emit(Cancelled())
    await writer.emit(RUNNING)
    await GuestWriter(world.streams, turn_id).emit(RUNNING)

    assert (await world.read(turn_id))[-1] == (1, "cancelled")
    ttl_s = await world.redis.ttl(redis_keys.event_stream(turn_id))
    assert 0 < ttl_s <= settings.event_ttl_s


@pytest.mark.parametrize("epoch", [1, 2, 3], ids=["lower", "top", "higher"])
async def test_ended_stream_says_so_at_every_epoch(world: World, epoch: int) -> None:
    """Whoever asks is done with it: there is nothing to adopt, to open or to complete."""
    turn_id = await world.post()
    await world.streams.open(turn_id, 2)
    await GuestWriter(world.streams, turn_id).emit(Cancelled())
    events = await world.events(turn_id)

    answers = [
        await world.streams.log.open(turn_id, epoch),
        await world.streams.log.append(turn_id, epoch, [RUNNING]),
        await world.streams.log.append_snapshot(turn_id, epoch, SNAPSHOT),
    ]

    assert [(answer.word, answer.top) for answer in answers] == [("ended", 2)] * 3
    assert await world.events(turn_id) == events


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_events_dropped_while_redis_was_away_are_in_the_next_snapshot(
    database_url: str,
    own_redis: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shared.event_writer.REST_S", 0.0)
    settings = Settings.from_environment(
        {"TURNMILL_DATABASE_URL": database_url, "TURNMILL_REDIS_URL": own_redis.url},
    )
    database, redis = open_database(settings), open_redis(settings)
    world = World(database, redis, EventStreams(EventLog(redis, settings), database))
    turn_id = await world.post()
    so_far = [Answer(status="delta", content="whole", offset=0)]
    writer = world.writer(await world.claim(turn_id), so_far)

    own_redis.kill()
    await writer.emit(RUNNING)
    own_redis.restart()
    await writer.emit(RUNNING)

    assert await world.read(turn_id) == [(2, "snapshot"), (2, "answer"), (2, "status")]
    await redis.aclose()
    await database.close()
