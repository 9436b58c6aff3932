"""Works that run at the same time and end together."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TypeVar

T = TypeVar("T")


async def together(works: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """Run works at the same time; return their results in order. The first failure ends all."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
