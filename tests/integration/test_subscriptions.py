"""Listening over one connection that comes and goes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from shared.event_log import open_redis
from shared.settings import Settings
from shared.subscriptions import Subscriptions
from tests.helpers.waiting import wait_until_async


@pytest.fixture
async def redis(settings: Settings) -> AsyncIterator[Redis]:
    redis = open_redis(settings)
    yield redis
    await redis.aclose()


@pytest.fixture
async def subscriptions(redis: Redis) -> AsyncIterator[Subscriptions]:
    """Give subscriptions that run."""
    subscriptions = Subscriptions(redis)
    running = asyncio.create_task(subscriptions.run())
    yield subscriptions
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_first_listener_after_the_last_one_is_heard(subscriptions: Subscriptions) -> None:
    """The connection is given up as the last listener leaves, whoever comes at that moment."""
    for number in range(300):
        await listen_for_a_moment(subscriptions, f"channel-{number}", waits=number % 7)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_listener_that_fails_at_once_leaves_no_channel_behind(
    subscriptions: Subscriptions, redis: Redis
) -> None:
    first = asyncio.Event()

    def fail(_payload: bytes | None) -> None:
        raise RuntimeError("a defect")

    async def is_heard() -> bool:
        ((_, listeners),) = await redis.pubsub_numsub("channel")
        return bool(listeners)

    async def is_forgotten() -> bool:
        return not await is_heard()

    async with subscriptions.listen("channel", lambda _payload: first.set()):
        await asyncio.wait_for(first.wait(), 5)
        with pytest.raises(RuntimeError, match="a defect"):
            async with subscriptions.listen("channel", fail):
                pass
        assert await is_heard()

    await wait_until_async(is_forgotten, timeout_s=5, message="the channel is still subscribed")


async def listen_for_a_moment(subscriptions: Subscriptions, channel: str, *, waits: int) -> None:
    subscribed = asyncio.Event()
    for _ in range(waits):
        await asyncio.sleep(0)
    async with subscriptions.listen(channel, lambda _payload: subscribed.set()):
        async with asyncio.timeout(5):
            await subscribed.wait()
