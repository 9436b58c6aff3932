"""What becomes of a claimed turn whose work cannot begin."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TypeVar

import pytest
from sqlalchemy import Connection, select

from shared.admission import admit_turn
from shared.broker import Doorbell, create_broker
from shared.database import Database, open_database
from shared.event_log import EventLog, open_redis
from shared.event_writer import EventStreams
from shared.repositories import turns
from shared.settings import Settings
from shared.subscriptions import Handler, Subscriptions
from shared.tables import Turn
from shared.task_names import TURNS_QUEUE, TurnTask
from shared.turn_state import IfBusy, TurnStatus
from tests.helpers.posting import new_turn
from workers.runtime.held import HeldLeases
from workers.runtime.progress import Progress
from workers.runtime.runner import TurnRunner
from workers.runtime.turn_run import TurnRun

T = TypeVar("T")


class InterruptedDatabase:
    """A store during whose first write something else happens in the process."""

    def __init__(self, database: Database, interrupt: Callable[[], None]) -> None:
        self.read = database.read
        self.close = database.close
        self._write = database.write
        self._interrupts = [interrupt]

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run work in one transaction; after the first, run what interrupts."""
        result = await self._write(work)
        while self._interrupts:
            self._interrupts.pop()()
        return result


@dataclass
class World:
    """A worker's parts, without the worker."""

    settings: Settings
    database: Database
    streams: EventStreams
    subscriptions: Subscriptions
    doorbell: Doorbell
    held: HeldLeases

    async def post(self) -> TurnTask:
        turn = new_turn()

        def work(connection: Connection) -> None:
            admit_turn(connection, turn, starts_conversation=True, if_busy=IfBusy.QUEUE)

        await self.database.write(work)
        return TurnTask(turn_id=turn.id, conversation_id=turn.conversation_id)

    def runner(self, *, database: Database | None = None) -> TurnRunner:
        """Return a runner whose engine must not be asked."""
        return TurnRunner(
            refuse,
            settings=self.settings,
            owner="worker",
            database=database or self.database,
            streams=self.streams,
            subscriptions=self.subscriptions,
            doorbell=self.doorbell,
            held=self.held,
        )

    async def check_let_go(self, task: TurnTask) -> None:
        """Check that any worker may take the turn at once, and that the next one hears of it."""
        query = select(Turn.status, Turn.attempt, Turn.lease_until).where(Turn.id == task.turn_id)
        row = await self.database.read(lambda connection: connection.execute(query).one())
        assert tuple(row) == (TurnStatus.RUNNING, 1, None)
        assert not self.held.fences()
        assert await self.doorbell.count_waiting(TURNS_QUEUE) == 1


async def refuse(run: TurnRun, _progress: Progress) -> None:
    raise AssertionError(f"work on {run.turn.id} was begun")


def fail(channel: str, _handler: Handler) -> AbstractAsyncContextManager[None]:
    raise RuntimeError(f"a defect: {channel} cannot be heard")


@pytest.fixture
async def world(settings: Settings) -> AsyncIterator[World]:
    database, redis = open_database(settings), open_redis(settings)
    subscriptions = Subscriptions(redis)
    running = asyncio.create_task(subscriptions.run())
    doorbell = Doorbell(create_broker(settings))
    streams = EventStreams(EventLog(redis, settings), database)
    yield World(settings, database, streams, subscriptions, doorbell, HeldLeases())
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    doorbell.close()
    await redis.aclose()
    await database.close()


async def test_turn_ends_when_its_channel_cannot_be_heard(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Let go instead, it would go from worker to worker, each of which meets the same defect."""
    task = await world.post()
    monkeypatch.setattr(world.subscriptions, "listen", fail)

    with pytest.raises(RuntimeError, match="a defect"):
        await world.runner().run(task)

    turn = await world.database.read(lambda connection: turns.get_turn(connection, task.turn_id))
    assert turn is not None
    assert turn.status is TurnStatus.FAILED
    assert turn.error is not None
    assert turn.error["type"] == "internal_error"
    assert not world.held.fences()
    assert await world.doorbell.count_waiting(TURNS_QUEUE) == 0


async def test_turn_claimed_as_a_drain_begins_is_handed_over_untouched(world: World) -> None:
    """No model call is begun that the end of the drain would cut off."""
    task = await world.post()
    interrupted = InterruptedDatabase(world.database, lambda: world.held.drain(grace_s=30))

    assert await world.runner(database=interrupted).run(task) == "handed_over"

    await world.check_let_go(task)
