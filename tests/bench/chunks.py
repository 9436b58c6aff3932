"""What a streamed chunk costs, against the bare client."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

from openai import AsyncOpenAI

from demo.reply import Reply
from shared.file_store import FileStore
from shared.settings import Settings
from tests.bench.measured import Measured
from tests.helpers.limits import open_limiter
from tests.helpers.model_server import ScriptedModel
from tests.helpers.refusals import Remembered
from tests.helpers.servers import RedisServer
from workers.context.messages import Message
from workers.model.client import ModelClient
from workers.model.retry import Retry
from workers.model.timeouts import Timeouts
from workers.model.values import ModelRequest, ModelTarget

CHUNKS = 5_000
ROUNDS = 5
MAX_RATIO = 1.0
WORDS = tuple(f"word{number} " for number in range(CHUNKS))


def measure_chunks(folder: Path) -> Iterator[Measured]:
    """Yield the CPU time of the reading thread per chunk, both ways."""
    with RedisServer() as redis, ScriptedModel() as model:
        model.respond = lambda _request: Reply(text=WORDS)
        ours_us, bare_us = asyncio.run(_measure(redis.url, model.base_url, folder))
    ratio = ours_us / bare_us
    yield Measured(
        f"a streamed chunk: {ours_us:.0f} µs CPU, the bare client {bare_us:.0f} µs"
        f" ({ratio:.2f} times it, at most {MAX_RATIO:g})",
        holds=ratio <= MAX_RATIO,
    )


async def _measure(redis_url: str, base_url: str, folder: Path) -> tuple[float, float]:
    settings = Settings.from_environment({})
    target = ModelTarget(
        name="scripted",
        base_url=base_url,
        api_key="test-key",
        context_size=100_000,
        max_output_tokens=10_000,
    )
    request = ModelRequest(target=target, messages=(Message(role="user", content="Count."),))
    bare = AsyncOpenAI(base_url=base_url, api_key="test-key")
    async with open_limiter(redis_url) as limiter:
        client = ModelClient(
            FileStore(folder),
            limiter,
            Remembered(),
            timeouts=Timeouts.of(settings),
            retry=Retry.of(settings),
        )

        async def read_ours() -> int:
            async with aclosing(client.stream(request)) as events:
                return len([event async for event in events])

        async def read_bare() -> int:
            stream = await bare.chat.completions.create(
                model="scripted",
                messages=[{"role": "user", "content": "Count."}],
                stream=True,
                stream_options={"include_usage": True},
            )
            return len([chunk async for chunk in stream])

        pairs = [(await _chunk_us(read_ours), await _chunk_us(read_bare)) for _ in range(ROUNDS)]
        await client.close()
    await bare.close()
    return min(ours for ours, _ in pairs), min(other for _, other in pairs)


async def _chunk_us(read: Callable[[], Awaitable[int]]) -> float:
    before_s = time.thread_time()
    count = await read()
    if count < CHUNKS:
        raise RuntimeError(f"{count} chunks have come, not {CHUNKS}")
    return 1e6 * (time.thread_time() - before_s) / CHUNKS
