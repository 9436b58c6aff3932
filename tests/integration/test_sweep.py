"""The sweep rings what nobody works on, but only where a bell is heard."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
from kombu.exceptions import OperationalError
from sqlalchemy import Connection, select, update

from shared.admission import admit_turn
from shared.broker import Doorbell, create_broker
from shared.clock import now
from shared.database import Database, open_database
from shared.event_log import EventLog, open_redis
from shared.event_writer import EventStreams
from shared.ids import TurnId
from shared.settings import Settings
from shared.tables import Turn
from shared.task_names import TURNS_QUEUE
from shared.turn_state import IfBusy
from tests.helpers.ports import free_port
from tests.helpers.posting import new_turn
from workers.runtime.sweep import Sweep

# Well below what kombu takes of itself.
AT_ONCE_S = 3.0


@dataclass
class World:
    """A store with one turn whose doorbell was lost."""

    database: Database
    streams: EventStreams
    turn_id: TurnId

    async def sweep(self, doorbell: Doorbell) -> None:
        sweep = Sweep(self.database, self.streams, doorbell, pause_s=60, lease_s=60)
        await sweep.sweep()

    async def count_rings(self) -> int:
        query = select(Turn.rings).where(Turn.id == self.turn_id)
        return await self.database.read(
            lambda connection: connection.execute(query).scalar_one(),
        )


@pytest.fixture
async def world(settings: Settings) -> AsyncIterator[World]:
    database, redis = open_database(settings), open_redis(settings)
    turn = new_turn()

    def work(connection: Connection) -> None:
        admit_turn(connection, turn, starts_conversation=True, if_busy=IfBusy.QUEUE)
        connection.execute(update(Turn).values(rung_at=now(-60.0), rings=1))

    await database.write(work)
    yield World(database, EventStreams(EventLog(redis, settings), database), turn.id)
    await redis.aclose()
    await database.close()


@pytest.fixture
def doorbell(settings: Settings) -> Iterator[Doorbell]:
    doorbell = Doorbell(create_broker(settings))
    yield doorbell
    doorbell.close()


@pytest.fixture
def cut_off() -> Iterator[Doorbell]:
    """Give a doorbell whose broker is away."""
    url = f"redis://127.0.0.1:{free_port()}/0"
    doorbell = Doorbell(create_broker(Settings.from_environment({"TURNMILL_REDIS_URL": url})))
    yield doorbell
    doorbell.close()


async def test_turn_whose_doorbell_was_lost_is_rung(world: World, doorbell: Doorbell) -> None:
    await world.sweep(doorbell)

    assert await world.count_rings() == 2
    assert await doorbell.count_waiting(TURNS_QUEUE) == 1


async def test_turn_is_not_marked_as_rung_while_nobody_would_hear(
    world: World, cut_off: Doorbell, doorbell: Doorbell
) -> None:
    await world.sweep(cut_off)

    assert await world.count_rings() == 1
    await world.sweep(doorbell)
    assert await doorbell.count_waiting(TURNS_QUEUE) == 1


async def test_queue_of_a_broker_that_is_away_is_not_counted_for_long(cut_off: Doorbell) -> None:
    """Every ring of the process waits for the count."""
    async with asyncio.timeout(AT_ONCE_S):
        with pytest.raises(OperationalError):
            await cut_off.count_waiting(TURNS_QUEUE)
