"""Many turns at once, each streamed to a client of its own."""

import asyncio
import subprocess
import sys
import time

from tests.helpers.async_client import AsyncTurnmillClient


def measure_burst(url: str, turns: int) -> float:
    """Post turns at once and read each to its end.

    Returns seconds from the first request to the last terminal event. The clients run in a
    process of their own, which keeps them out of the model server's way.
    Raises CalledProcessError if a turn is not answered.
    """
    command = [sys.executable, "-m", "tests.bench.burst", url, str(turns)]
    return float(subprocess.check_output(command))


async def _measure(url: str, turns: int) -> float:
    async with AsyncTurnmillClient(url) as client:
        started_at = time.perf_counter()
        last = await asyncio.gather(*(_read(client, number) for number in range(turns)))
        wall_s = time.perf_counter() - started_at
    if set(last) != {"done"}:
        raise RuntimeError(f"not all turns were answered: {set(last)}")
    return wall_s


async def _read(client: AsyncTurnmillClient, number: int) -> str:
    last = ""
    async for event in client.stream_turn(f"question {number}"):
        last = event.event
    return last


if __name__ == "__main__":
    sys.stdout.write(f"{asyncio.run(_measure(sys.argv[1], int(sys.argv[2])))}\n")
