"""Many turns at once, each streamed to a client of its own."""

import asyncio
import time
from dataclasses import dataclass

from tests.helpers.async_client import AsyncTurnmillClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """What a burst took."""

    # From the first request to the last terminal event.
    wall_s: float


def measure_burst(url: str, turns: int) -> Burst:
    """Post turns at once and read each to its end. Raises RuntimeError if one is not answered."""
    return asyncio.run(_measure(url, turns))


async def _measure(url: str, turns: int) -> Burst:
    async with AsyncTurnmillClient(url) as client:
        started_at = time.perf_counter()
        last = await asyncio.gather(*(_read(client, number) for number in range(turns)))
        wall_s = time.perf_counter() - started_at
    if set(last) != {"done"}:
        raise RuntimeError(f"not all turns were answered: {set(last)}")
    return Burst(wall_s=wall_s)


async def _read(client: AsyncTurnmillClient, number: int) -> str:
    last = ""
    async for event in client.stream_turn(f"question {number}"):
        last = event.event
    return last
