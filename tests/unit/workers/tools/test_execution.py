import asyncio
import dataclasses
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from shared.errors import ToolError
from tests.unit.workers.tools.calls import CONTEXT
from workers.tools.execution import run_tool
from workers.tools.outcome import ToolOutcome
from workers.tools.registry import ToolRegistry
from workers.tools.tool import ToolContext, tool


async def run(
    function: Callable[..., object],
    arguments: str = "{}",
    *,
    timeout_s: float = 10,
    own_timeout_s: float | None = None,
) -> ToolOutcome:
    function.__doc__ = "Do it."
    function.__name__ = "doing"
    registry = ToolRegistry([tool(timeout_s=own_timeout_s)(function)])
    return await run_tool(registry, "doing", arguments, CONTEXT, timeout_s=timeout_s)


def returning(value: object) -> Callable[..., object]:
    async def function() -> object:
        return value

    return function


def raising(error: BaseException) -> Callable[..., object]:
    async def function() -> None:
        raise error

    return function


async def test_result_of_a_coroutine() -> None:
    async def add(left: int, right: int) -> str:
        return str(left + right)

    outcome = await run(add, '{"left": 1, "right": 2}')
    assert (outcome.content, outcome.is_error) == ("3", False)
    assert 0 <= outcome.elapsed_s < 10


async def test_other_functions_run_in_a_thread() -> None:
    def where() -> str:
        return str(threading.get_ident())

    assert (await run(where)).content != str(threading.get_ident())


async def test_context_is_passed() -> None:
    async def key(context: ToolContext) -> str:
        return context.tool_call_id

    assert (await run(key)).content == "tool_1"


@dataclasses.dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        ("", "(no output)"),
        (None, "null"),
        ({"größe": [1, 2.5, True]}, '{"größe": [1, 2.5, true]}'),
        (10**30, str(10**30)),
        (Point(1), '{"x": 1}'),
        ([datetime(2026, 1, 2, tzinfo=UTC)], '["2026-01-02T00:00:00Z"]'),
    ],
)
async def test_result_becomes_text(value: object, content: str) -> None:
    outcome = await run(returning(value))
    assert (outcome.content, outcome.is_error) == (content, False)


async def test_result_that_cannot_be_encoded_is_an_error() -> None:
    for value in (object(), {(1, 2): 3}):
        outcome = await run(returning(value))
        assert outcome.is_error
        assert outcome.content.startswith("doing failed: ")


async def test_long_result_is_cut_with_a_mark() -> None:
    outcome = await run(returning("x" * 60_000))
    assert len(outcome.content) == 50_000
    assert outcome.content.endswith("[Truncated]")
    assert not outcome.is_error


async def test_result_can_be_stored() -> None:
    for value in ("a\0b\ud800c", {"k": "b\ud800c"}):
        content = (await run(returning(value))).content
        assert "\0" not in content
        content.encode()


async def test_unknown_tool() -> None:
    outcome = await run_tool(ToolRegistry([]), "nope", "{}", CONTEXT, timeout_s=1)
    assert (outcome.content, outcome.is_error) == (
        "There is no tool 'nope'. Available tools: none",
        True,
    )


@pytest.mark.parametrize("arguments", ["{", '{"extra": 1}', "\ud800", "\0"])
async def test_wrong_arguments(arguments: str) -> None:
    outcome = await run(returning("never"), arguments)
    assert outcome.is_error
    assert outcome.content.startswith("The arguments of doing are wrong.")


@pytest.mark.parametrize(
    ("error", "content"),
    [
        (ToolError("Try it another way"), "Try it another way"),
        (ValueError("bad\0"), "doing failed: ValueError: bad�"),
        (TimeoutError("its own"), "doing failed: TimeoutError: its own"),
        (SystemExit(3), "doing failed: SystemExit: 3"),
        (StopIteration(), "doing failed: RuntimeError: coroutine raised StopIteration"),
    ],
)
async def test_failure_is_the_models_to_see(error: BaseException, content: str) -> None:
    outcome = await run(raising(error))
    assert (outcome.content, outcome.is_error) == (content, True)


async def test_failure_in_a_thread_is_the_models_to_see() -> None:
    for error in (ValueError("bad"), StopIteration(), SystemExit(3)):

        def fail(error: BaseException = error) -> None:
            raise error

        def failing() -> None:
            fail()

        outcome = await run(failing)
        assert outcome.is_error
        assert outcome.content.startswith("doing failed: ")


async def test_slow_coroutine_is_stopped() -> None:
    was_cancelled = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()

    outcome = await run(slow, timeout_s=0.01)
    assert outcome.is_error
    assert outcome.content == "doing was stopped: it took longer than 0.01 s"
    assert was_cancelled.is_set()


async def test_slow_thread_is_left_behind() -> None:
    release = threading.Event()

    def slow() -> None:
        release.wait(10)

    outcome = await run(slow, timeout_s=0.01)
    release.set()
    assert outcome.content == "doing was stopped: it took longer than 0.01 s"
    assert outcome.elapsed_s < 5


async def test_tools_own_timeout_rules() -> None:
    async def slow() -> None:
        await asyncio.Event().wait()

    assert (await run(slow, timeout_s=10, own_timeout_s=0.01)).is_error


async def test_cancellation_passes_through() -> None:
    started = asyncio.Event()

    async def slow() -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(run(slow))
    await asyncio.wait_for(started.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
