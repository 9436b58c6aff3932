"""The sweep rings what nobody works on, but only where a bell is heard."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
from kombu.exceptions import OperationalError
from sqlalchemy import select, update

from shared.broker import Doorbell, create_broker
from shared.clock import now
from shared.event_log import EventLog
from shared.event_writer import EventStreams
from shared.ids import TurnId
from shared.settings import Settings
from shared.tables import Turn
from shared.task_names import TURNS_QUEUE
from tests.helpers.parts import Parts, open_parts
from tests.helpers.ports import free_port
from workers.runtime.sweep import Sweep

# Well below what kombu takes of itself.
AT_ONCE_S = 3.0


@dataclass
class World:
    """A store with one turn whose doorbell was lost."""

    parts: Parts
    turn_id: TurnId

    async def sweep(self, doorbell: Doorbell) -> None:
        database = self.parts.database
        streams = EventStreams(EventLog(self.parts.redis, self.parts.settings), database)
        sweep = Sweep(database, streams, doorbell, pause_s=60, lease_s=60, max_crashes=5)
        await sweep.sweep()

    async def count_rings(self) -> int:
        query = select(Turn.rings).where(Turn.id == self.turn_id)
        return await self.parts.database.read(
            lambda connection: connection.execute(query).scalar_one(),
        )


@pytest.fixture
async def world(settings: Settings) -> AsyncIterator[World]:
    async with open_parts(settings) as parts:
        task = await parts.post()
        long_ago = update(Turn).values(rung_at=now(-60.0), rings=1)
        await parts.database.write(lambda connection: connection.execute(long_ago))
        yield World(parts, task.turn_id)


@pytest.fixture
def cut_off() -> Iterator[Doorbell]:
    """Give a doorbell whose broker is away."""
    url = f"redis://127.0.0.1:{free_port()}/0"
    doorbell = Doorbell(create_broker(Settings.from_environment({"TURNMILL_REDIS_URL": url})))
    yield doorbell
    doorbell.close()


async def test_turn_whose_doorbell_was_lost_is_rung(world: World) -> None:
    await world.sweep(world.parts.doorbell)

    assert await world.count_rings() == 2
    assert await world.parts.doorbell.count_waiting(TURNS_QUEUE) == 1


async def test_turn_is_not_marked_as_rung_while_nobody_would_hear(
    world: World, cut_off: Doorbell
) -> None:
    await world.sweep(cut_off)

    assert await world.count_rings() == 1
    await world.sweep(world.parts.doorbell)
    assert await world.parts.doorbell.count_waiting(TURNS_QUEUE) == 1


async def test_queue_of_a_broker_that_is_away_is_not_counted_for_long(cut_off: Doorbell) -> None:
    """Every ring of the process waits for the count."""
    async with asyncio.timeout(AT_ONCE_S):
        with pytest.raises(OperationalError):
            await cut_off.count_waiting(TURNS_QUEUE)
