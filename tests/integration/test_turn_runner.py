"""What becomes of a claimed turn whose work cannot begin."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TypeVar

import pytest
from sqlalchemy import Connection, select

from shared.database import Database
from shared.event_log import EventLog
from shared.event_writer import EventStreams
from shared.repositories import turns
from shared.settings import Settings
from shared.subscriptions import Handler
from shared.tables import Turn
from shared.task_names import TURNS_QUEUE, TurnTask
from shared.turn_state import TurnStatus
from tests.helpers.parts import Parts, open_parts
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
    """A worker's parts, its held leases among them."""

    parts: Parts
    held: HeldLeases

    def runner(self, *, database: Database | None = None) -> TurnRunner:
        """Return a runner whose engine must not be asked."""
        parts = self.parts
        return TurnRunner(
            refuse,
            settings=parts.settings,
            owner="worker",
            database=database or parts.database,
            streams=EventStreams(EventLog(parts.redis, parts.settings), parts.database),
            subscriptions=parts.subscriptions,
            doorbell=parts.doorbell,
            held=self.held,
        )

    async def check_let_go(self, task: TurnTask) -> None:
        """Check that any worker may take the turn at once, and that the next one hears of it."""
        query = select(Turn.status, Turn.attempt, Turn.lease_until).where(Turn.id == task.turn_id)
        row = await self.parts.database.read(lambda connection: connection.execute(query).one())
        assert tuple(row) == (TurnStatus.RUNNING, 1, None)
        assert not self.held.fences()
        assert await self.parts.doorbell.count_waiting(TURNS_QUEUE) == 1


async def refuse(run: TurnRun, _progress: Progress) -> None:
    raise AssertionError(f"work on {run.turn.id} was begun")


def fail(channel: str, _handler: Handler) -> AbstractAsyncContextManager[None]:
    raise RuntimeError(f"a defect: {channel} cannot be heard")


@pytest.fixture
async def world(settings: Settings) -> AsyncIterator[World]:
    async with open_parts(settings) as parts:
        yield World(parts, HeldLeases())


async def test_turn_ends_when_its_channel_cannot_be_heard(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Let go instead, it would go from worker to worker, each of which meets the same defect."""
    task = await world.parts.post()
    monkeypatch.setattr(world.parts.subscriptions, "listen", fail)

    with pytest.raises(RuntimeError, match="a defect"):
        await world.runner().run(task)

    turn = await world.parts.database.read(
        lambda connection: turns.get_turn(connection, task.turn_id)
    )
    assert turn is not None
    assert turn.status is TurnStatus.FAILED
    assert turn.error is not None
    assert turn.error["type"] == "internal_error"
    assert not world.held.fences()
    assert await world.parts.doorbell.count_waiting(TURNS_QUEUE) == 0


async def test_turn_claimed_as_a_drain_begins_is_handed_over_untouched(world: World) -> None:
    """No model call is begun that the end of the drain would cut off."""
    task = await world.parts.post()
    interrupted = InterruptedDatabase(world.parts.database, lambda: world.held.drain(grace_s=30))

    assert await world.runner(database=interrupted).run(task) == "handed_over"

    await world.check_let_go(task)
