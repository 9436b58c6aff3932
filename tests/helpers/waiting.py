"""Waiting for a condition, never for a time: what every test uses instead of a sleep."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")

# Pause between two looks: short enough not to matter, long enough to cost nothing.
POLL_S = 0.02


def wait_until(
    condition: Callable[[], T],
    *,
    timeout_s: float = 10.0,
    message: str | Callable[[], str],
) -> T:
    """Call condition until it returns something true, and return that.

    message: what was waited for; a callable is asked once, at the end, so it can say how far
    things got. Raises TimeoutError with the message after timeout_s.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(_explain(message, timeout_s))
        time.sleep(POLL_S)


@overload
async def wait_until_async(
    condition: Callable[[], Awaitable[T]],
    *,
    timeout_s: float = ...,
    message: str | Callable[[], str],
) -> T: ...


@overload
async def wait_until_async(
    condition: Callable[[], T],
    *,
    timeout_s: float = ...,
    message: str | Callable[[], str],
) -> T: ...


async def wait_until_async(
    condition: Callable[[], object],
    *,
    timeout_s: float = 10.0,
    message: str | Callable[[], str],
) -> object:
    """Do as `wait_until` does, leaving the event loop free; condition may be async."""
    deadline = time.monotonic() + timeout_s
    while True:
        outcome = condition()
        value = await outcome if inspect.isawaitable(outcome) else outcome
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(_explain(message, timeout_s))
        await asyncio.sleep(POLL_S)


def _explain(message: str | Callable[[], str], timeout_s: float) -> str:
    text = message if isinstance(message, str) else message()
    return f"after {timeout_s:g} s: {text}"
