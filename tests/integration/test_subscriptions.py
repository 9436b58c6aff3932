"""Listening over one connection that comes and goes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from shared.event_log import open_redis
from shared.settings import Settings
from shared.subscriptions import Subscriptions


@pytest.fixture
async def subscriptions(settings: Settings) -> AsyncIterator[Subscriptions]:
    """Give subscriptions that run."""
    redis = open_redis(settings)
    subscriptions = Subscriptions(redis)
    running = asyncio.create_task(subscriptions.run())
    yield subscriptions
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await redis.aclose()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_first_listener_after_the_last_one_is_heard(subscriptions: Subscriptions) -> None:
    """The connection is given up as the last listener leaves, whoever comes at that moment."""
    for number in range(300):
        await listen_for_a_moment(subscriptions, f"channel-{number}", waits=number % 7)


async def listen_for_a_moment(subscriptions: Subscriptions, channel: str, *, waits: int) -> None:
    subscribed = asyncio.Event()
    for _ in range(waits):
        await asyncio.sleep(0)
    async with subscriptions.listen(channel, lambda _payload: subscribed.set()):
        async with asyncio.timeout(5):
            await subscribed.wait()
