"""Hooks around a tool call, as `run_tool` runs them."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from shared.errors import ToolError
from tests.unit.workers.tools.calls import CONTEXT
from workers.tools.execution import run_tool
from workers.tools.hooks import HookedCall, ToolHook
from workers.tools.outcome import ToolOutcome
from workers.tools.registry import ToolRegistry
from workers.tools.tool import Tool, tool


class Doing:
    """A tool that notes what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    async def run(self, text: str, count: int = 1) -> str:
        """Do it."""
        self.calls.append((text, count))
        if text == "fail":
            raise ValueError("secret")
        return text * count


class Watching(ToolHook):
    """Notes all it sees."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    async def before(self, call: HookedCall) -> None:
        self.seen.append((call.name, dict(call.arguments), call.context.tool_call_id))

    async def after(self, call: HookedCall, outcome: ToolOutcome) -> None:
        self.seen.append((dict(call.arguments), outcome.content, outcome.is_error))


class Before(ToolHook):
    """Does something before the call."""

    def __init__(self, act: Callable[[HookedCall], Mapping[str, object] | None]) -> None:
        self.act = act

    async def before(self, call: HookedCall) -> Mapping[str, object] | None:
        return self.act(call)


class After(ToolHook):
    """Does something after the call."""

    def __init__(self, act: Callable[[ToolOutcome], str | None]) -> None:
        self.act = act

    async def after(self, _call: HookedCall, outcome: ToolOutcome) -> str | None:
        return self.act(outcome)


class Hanging(ToolHook):
    """Never comes to an end."""

    def __init__(self) -> None:
        self.is_reached = asyncio.Event()

    async def before(self, _call: HookedCall) -> None:
        self.is_reached.set()
        await asyncio.Event().wait()


def raise_it(error: BaseException) -> None:
    raise error


@pytest.fixture
def doing() -> Doing:
    return Doing()


@pytest.fixture
def made(doing: Doing) -> Tool:
    return tool()(doing)


async def run(made: Tool, *hooks: ToolHook, arguments: str = '{"text": "a"}') -> ToolOutcome:
    registry = ToolRegistry([made], hooks).subset(["doing"])
    return await run_tool(registry, "doing", arguments, CONTEXT, timeout_s=5)


async def test_hook_sees_the_call_and_its_outcome(made: Tool) -> None:
    watching = Watching()

    outcome = await run(made, watching)

    assert outcome.content == "a"
    assert watching.seen == [
        ("doing", {"text": "a"}, "tool_1"),
        ({"text": "a"}, "a", False),
    ]


async def test_arguments_are_rewritten_in_order_and_checked(made: Tool, doing: Doing) -> None:
    longer = Before(lambda call: {"text": f"{call.arguments['text']}b"})
    watching = Watching()

    outcome = await run(made, longer, Before(lambda _: None), longer, watching)

    assert (outcome.content, doing.calls) == ("abb", [("abb", 1)])
    assert watching.seen[1] == ({"text": "abb"}, "abb", False)
    wrong = await run(made, Before(lambda _: {"count": "many"}))
    assert (wrong.is_error, len(doing.calls)) == (True, 1)
    assert wrong.content.startswith("The arguments of doing are wrong. ")


async def test_results_are_rewritten_in_order_and_cut(made: Tool) -> None:
    more = After(lambda outcome: outcome.content + "!")

    assert (await run(made, more, more)).content == "a!!"
    long = (await run(made, After(lambda _: "x" * 60_000))).content
    assert (len(long), long[-11:]) == (50_000, "[Truncated]")


async def test_blocked_call_does_not_run(made: Tool, doing: Doing) -> None:
    watching = Watching()

    outcome = await run(made, Before(lambda _: raise_it(ToolError("Not on Sundays"))), watching)

    assert (outcome.content, outcome.is_error) == ("Not on Sundays", True)
    assert (doing.calls, watching.seen) == ([], [])


@pytest.mark.parametrize("error", [KeyError("x"), SystemExit(1), TimeoutError()])
async def test_hook_that_fails_blocks(made: Tool, doing: Doing, error: BaseException) -> None:
    outcome = await run(made, Before(lambda _: raise_it(error)))

    assert (outcome.content, outcome.is_error) == ("doing was blocked: a check failed", True)
    assert doing.calls == []


async def test_hook_that_hangs_blocks(made: Tool, doing: Doing) -> None:
    registry = ToolRegistry([made], [Hanging()])

    outcome = await run_tool(registry, "doing", '{"text": "a"}', CONTEXT, timeout_s=0.01)

    assert outcome.content == "doing was blocked: a check failed"
    assert doing.calls == []


async def test_arguments_that_are_no_json_block(made: Tool, doing: Doing) -> None:
    assert (await run(made, Before(lambda _: {"text": object()}))).is_error
    assert doing.calls == []


@pytest.mark.parametrize("error", [ToolError("Withheld"), KeyError("x")])
async def test_result_is_withheld(made: Tool, doing: Doing, error: Exception) -> None:
    outcome = await run(made, After(lambda _: raise_it(error)))

    assert outcome.is_error
    assert outcome.content in ("Withheld", "doing was blocked: a check failed")
    assert doing.calls == [("a", 1)]


async def test_failure_can_be_rewritten_too(made: Tool) -> None:
    quiet = After(lambda outcome: "It failed" if outcome.is_error else None)

    outcome = await run(made, quiet, arguments='{"text": "fail"}')

    assert (outcome.content, outcome.is_error) == ("It failed", True)


async def test_hooks_see_no_call_that_the_tool_would_not_take(made: Tool) -> None:
    watching = Watching()

    assert (await run(made, watching, arguments="[1]")).is_error
    assert watching.seen == []


async def test_cancellation_passes_through(made: Tool) -> None:
    hanging = Hanging()
    task = asyncio.create_task(run(made, hanging))
    await asyncio.wait_for(hanging.is_reached.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
