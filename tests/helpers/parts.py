"""A worker's parts on the test's own loop, without the worker: nothing sweeps or renews."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from redis.asyncio import Redis
from sqlalchemy import Connection

from shared.admission import admit_turn
from shared.broker import Doorbell, create_broker
from shared.database import Database, open_database
from shared.event_log import open_redis
from shared.settings import Settings
from shared.subscriptions import Subscriptions
from shared.task_names import TurnTask
from shared.turn_state import IfBusy
from tests.helpers.posting import new_turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a worker process opens. The subscriptions run."""

    settings: Settings
    database: Database
    redis: Redis
    subscriptions: Subscriptions
    doorbell: Doorbell

    async def post(self) -> TurnTask:
        """Write down a turn of a new conversation; return its doorbell, which is not rung."""
        turn = new_turn()

        def work(connection: Connection) -> None:
            admit_turn(connection, turn, starts_conversation=True, if_busy=IfBusy.QUEUE)

        await self.database.write(work)
        return TurnTask(turn_id=turn.id, conversation_id=turn.conversation_id)


@contextlib.asynccontextmanager
async def open_parts(settings: Settings) -> AsyncIterator[Parts]:
    """Give a worker's parts, closed at the end."""
    redis = open_redis(settings)
    subscriptions = Subscriptions(redis)
    running = asyncio.create_task(subscriptions.run())
    parts = Parts(
        settings=settings,
        database=open_database(settings),
        redis=redis,
        subscriptions=subscriptions,
        doorbell=Doorbell(create_broker(settings)),
    )
    try:
        yield parts
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        parts.doorbell.close()
        await redis.aclose()
        await parts.database.close()
