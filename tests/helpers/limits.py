"""Limiters on the test's own loop, each as a worker process has one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from shared.event_log import open_redis
from shared.settings import Settings
from shared.subscriptions import Subscriptions
from workers.model.limiter import ModelLimiter


@contextlib.asynccontextmanager
async def open_limiter(
    redis_url: str,
    process: str = "worker",
    *,
    max_waiting: int = 1000,
    max_wait_s: float = 60.0,
) -> AsyncIterator[ModelLimiter]:
    """Give the limiter of a process, stopped at the end."""
    redis = open_redis(Settings.from_environment({"TURNMILL_REDIS_URL": redis_url}))
    subscriptions = Subscriptions(redis)
    running = asyncio.create_task(subscriptions.run())
    limiter = ModelLimiter(
        redis,
        subscriptions,
        process=process,
        max_waiting=max_waiting,
        max_wait_s=max_wait_s,
    )
    try:
        yield limiter
    finally:
        await limiter.stop()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await redis.aclose()
