"""Which tools a turn's model is offered, and which of many are picked for it."""

import json

import pytest

from shared.errors import ModelUnavailableError
from tests.helpers.tools import SHELVES
from tests.unit.workers.model.requests import TARGET
from workers.context.messages import ToolCall
from workers.model.values import NO_USAGE, ModelRequest, ModelResponse
from workers.react.offered_tools import (
    LINE_CHARS,
    MAX_PICKED,
    OfferedTools,
    are_too_many,
    describe,
    pick_tools,
    request_tools,
)
from workers.tools.registry import ToolRegistry
from workers.tools.tool import tool

MANY = ToolRegistry(SHELVES)


class Remembered:
    """Keeps what is loaded."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def __call__(self, names: object) -> None:
        assert isinstance(names, list)
        self.names += names


def offer(*names: str) -> tuple[OfferedTools, Remembered]:
    remembered = Remembered()
    offered = OfferedTools(MANY, remembered)
    if names:
        offered.select(names)
    return offered, remembered


def offered_names(offered: OfferedTools) -> list[str]:
    return [schema.name for schema in offered.schemas]


async def pick(answer: str | Exception) -> tuple[tuple[str, ...], list[ModelRequest]]:
    requests: list[ModelRequest] = []

    async def call(request: ModelRequest) -> ModelResponse:
        requests.append(request)
        if isinstance(answer, Exception):
            raise answer
        called = ToolCall(id="call_1", name="pick_tools", arguments=answer)
        return ModelResponse(
            text="", tool_calls=(called,), finish_reason="tool_calls", usage=NO_USAGE
        )

    return await pick_tools(call, TARGET, MANY, "Where is the salt?"), requests


@pytest.mark.parametrize(("threshold", "are"), [(0, False), (13, True), (14, False), (15, False)])
def test_too_many(threshold: int, *, are: bool) -> None:
    assert are_too_many(MANY, threshold) is are


async def test_picked_tools_are_known_distinct_and_few() -> None:
    names = ["shelf_3", "bogus", "shelf_3", *(f"shelf_{number}" for number in range(5, 13))]
    picked, (request,) = await pick(json.dumps({"names": names}))
    assert picked == ("shelf_3", "shelf_5", "shelf_6", "shelf_7", "shelf_8", "shelf_9")
    assert len(picked) == MAX_PICKED
    assert request.purpose == "selection"
    assert "- shelf_14: Look for an item on shelf 14." in str(request.messages[0].content)
    assert request.messages[-1].content == "Where is the salt?"


@pytest.mark.parametrize(
    "answer", ["no JSON", '{"names": []}', '{"names": ["bogus"]}', ModelUnavailableError("no")]
)
async def test_nothing_that_can_be_used_was_picked(answer: str | Exception) -> None:
    picked, _ = await pick(answer)
    assert picked == ()


def test_all_are_offered_until_some_are_selected() -> None:
    offered, _ = offer()
    assert offered_names(offered) == list(MANY.names)
    assert offered.catalog == ""
    offered.add(["shelf_1"])
    assert offered_names(offered) == list(MANY.names)


def test_selected_tools_come_in_their_order_with_the_loader_first() -> None:
    offered, _ = offer("shelf_9", "bogus", "shelf_2")
    assert offered_names(offered) == [request_tools.name, "shelf_9", "shelf_2"]
    assert offered.registry.find("shelf_1") is None


@pytest.mark.parametrize("names", [("bogus",), MANY.names])
def test_selection_that_is_none_offers_all_and_no_loader(names: tuple[str, ...]) -> None:
    offered, _ = offer(*names)
    assert offered_names(offered) == list(MANY.names)


async def test_loaded_tools_are_offered_last_and_remembered() -> None:
    offered, remembered = offer("shelf_9")
    catalog = offered.catalog
    said = await offered.load(["shelf_1", "shelf_9", "bogus", "request_tools", "shelf_1"])
    assert said.splitlines() == [
        "Loaded: shelf_1.",
        "Already loaded: shelf_9, request_tools.",
        "Not found: bogus.",
    ]
    assert offered_names(offered) == [request_tools.name, "shelf_9", "shelf_1"]
    assert remembered.names == ["shelf_1"]
    assert offered.catalog == catalog


async def test_loader_runs_what_the_registry_holds() -> None:
    offered, _ = offer("shelf_9")
    loader = offered.registry.find(request_tools.name)
    assert loader is not None
    assert await loader.function(names=["shelf_1"]) == "Loaded: shelf_1."  # type: ignore[misc]
    assert await offered.load([]) == "No names were given."


def test_line_of_a_tool_is_one_short_line() -> None:
    @tool()
    def talk() -> None:
        """Talk to somebody.

        They may say more than fits into a line, in the second paragraph, and then go on and on.
        """

    line = describe([talk])
    assert line.startswith("- talk: Talk to somebody. They may")
    assert len(line) == LINE_CHARS
    assert line.endswith("...")
