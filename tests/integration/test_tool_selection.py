"""Many tools, of which a turn is offered those that were picked, through the running product."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.protocol import ChatRequest
from demo.reply import Reply, ToolCall
from tests.helpers.client import Json, TurnmillClient
from tests.helpers.model_server import RecordedCall, ScriptedModel
from tests.helpers.product import Death, Product
from tests.helpers.sse import ServerEvent
from tests.helpers.talk import Talk
from workers.model.json_mode import INSTRUCTIONS

PICK = "pick_tools"
ANSWER = "The salt is on shelf 3."


@pytest.fixture
def world(fresh_product: Product) -> Product:
    """Give a product with more tools than are offered as they are."""
    fresh_product.environment |= {
        "TURNMILL_TOOLS": "tests.helpers.tools:SHELVES",
        "TURNMILL_BUILTIN_TOOLS": "none",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    fresh_product.start_api()
    return fresh_product


@pytest.fixture
def client(world: Product) -> Iterator[TurnmillClient]:
    """Give a client of it."""
    with world.client() as client:
        yield client


def is_pick(request: ChatRequest) -> bool:
    return PICK in request.tool_names


def is_loop_call(request: ChatRequest) -> bool:
    is_native = bool(request.tools) and not is_pick(request)
    return is_native or INSTRUCTIONS in request.messages[0].text


def calls_tool(name: str, arguments: dict[str, object]) -> Reply:
    return Reply(tool_calls=(ToolCall(name=name, arguments=arguments),))


def pick(*names: str) -> Reply:
    return calls_tool(PICK, {"names": list(names)})


def phases(events: list[ServerEvent]) -> list[Json]:
    return [event.data for event in events if event.event == "phase"]


def loop_calls(talk: Talk) -> list[RecordedCall]:
    return [call for call in talk.calls if is_loop_call(call.request)]


def script(talk: Talk, *replies: Reply) -> None:
    talk.when(is_loop_call, *replies)
    talk.when(lambda request: not is_pick(request), Reply(text=ANSWER))


def test_picked_tools_are_offered_and_others_can_be_loaded(
    world: Product, client: TurnmillClient, model: ScriptedModel
) -> None:
    world.start_worker()
    talk = Talk(client, model, "scripted")
    talk.when(is_pick, pick("shelf_3", "shelf_4"))
    script(
        talk,
        calls_tool("request_tools", {"names": ["shelf_9", "shelf_99"]}),
        calls_tool("shelf_9", {"item": "salt"}),
        Reply(text="brief"),
    )
    turn, events = talk.say("Where is the salt?")

    assert turn["answer"] == ANSWER
    assert phases(events)[0]["phase"] == "selecting_tools"
    assert phases(events)[0]["total_tools"] == 14
    assert [step["observation"] for step in turn["steps"]] == [
        "Loaded: shelf_9.\nNot found: shelf_99.",
        "salt is on shelf 9",
    ]
    first, second, _ = (call.request for call in loop_calls(talk))
    assert list(first.tool_names) == ["request_tools", "shelf_3", "shelf_4"]
    assert list(second.tool_names) == ["request_tools", "shelf_3", "shelf_4", "shelf_9"]
    assert "- shelf_14: Look for an item on shelf 14." in first.messages[0].text
    # The prefix that a provider's cache compares stays as it is.
    assert second.messages[: len(first.messages)] == first.messages
    assert turn["usage"]["by_purpose"]["selection"]["calls"] == 1


def test_conversation_keeps_its_tools(
    world: Product, client: TurnmillClient, model: ScriptedModel
) -> None:
    world.start_worker()
    talk = Talk(client, model, "scripted")
    talk.when(is_pick, pick("shelf_3"))
    script(
        talk,
        calls_tool("request_tools", {"names": ["shelf_9"]}),
        Reply(text="brief"),
        Reply(text="Again."),
    )
    talk.say("Where is the salt?")
    turn, events = talk.say("And the pepper?")

    assert turn["answer"] == "Again."
    assert phases(events) == []
    last = loop_calls(talk)[-1].request
    assert list(last.tool_names) == ["request_tools", "shelf_3", "shelf_9"]
    assert len([call for call in talk.calls if is_pick(call.request)]) == 1
    assert last.messages[0].text == loop_calls(talk)[0].request.messages[0].text


def test_without_a_selection_all_are_offered(
    world: Product, client: TurnmillClient, model: ScriptedModel
) -> None:
    world.start_worker()
    talk = Talk(client, model, "scripted")
    talk.when(is_pick, pick("no_such_tool"))
    script(talk, Reply(text="Hello."))
    turn, _ = talk.say("Hello.")

    assert turn["answer"] == "Hello."
    (call,) = loop_calls(talk)
    assert len(call.request.tool_names) == 14
    assert "request_tools" not in call.request.tool_names


def test_turn_that_names_few_tools_is_offered_them(
    world: Product, client: TurnmillClient, model: ScriptedModel
) -> None:
    world.start_worker()
    talk = Talk(client, model, "scripted")
    script(talk, Reply(text="Hello."))
    turn, events = talk.say("Hello.", tools=["shelf_2", "shelf_1"])

    assert turn["answer"] == "Hello."
    assert phases(events) == []
    assert [call.request.tool_names for call in talk.calls] == [("shelf_1", "shelf_2")]


def test_model_without_tool_calls_picks_and_loads_too(
    world: Product, client: TurnmillClient, model: ScriptedModel
) -> None:
    world.start_worker()
    talk = Talk(client, model, f"model-{uuid.uuid4().hex}", tool_call=False)
    load = (
        '{"type": "tool_call", "tool_name": "request_tools", "tool_args": {"names": ["shelf_9"]}}'
    )
    look = '{"type": "tool_call", "tool_name": "shelf_9", "tool_args": {"item": "salt"}}'
    talk.when(
        is_loop_call,
        *(Reply(text=text) for text in (load, look)),
        Reply(text='{"type": "final_answer", "answer": "brief"}'),
    )
    talk.when(
        lambda request: "JSON schema" in request.last_user_text,
        Reply(text='{"names": ["shelf_3"]}'),
    )
    talk.when(lambda _: True, Reply(text=ANSWER))
    turn, _ = talk.say("Where is the salt?")

    assert [step["observation"] for step in turn["steps"]] == [
        "Loaded: shelf_9.",
        "salt is on shelf 9",
    ]
    first, second, _ = (call.request for call in loop_calls(talk))
    assert "shelf_9" in second.messages[0].text
    assert first.messages[0].text != second.messages[0].text
    assert turn["usage"]["by_purpose"]["selection"]["calls"] == 1


def test_lost_worker_does_not_have_tools_picked_again(
    world: Product, client: TurnmillClient, model: ScriptedModel
) -> None:
    worker = world.start_worker()
    talk = Talk(client, model, "scripted")
    talk.when(is_pick, pick("shelf_3"))
    script(talk, Reply(text="Hello."))
    with model.hold(is_loop_call) as held:
        turn_id = client.post_turn("Hello.", model="scripted")["id"]
        held.wait_reached()
        worker.die(Death.KILL)
        world.start_worker("second")
        held.wait_reached(30.0, calls=2)
    turn = client.get_turn(turn_id, wait_s=30)

    assert turn["answer"] == "Hello."
    assert turn["attempt"] == 2
    assert len([call for call in talk.calls if is_pick(call.request)]) == 1
    names = [call.request.tool_names for call in loop_calls(talk)]
    assert names == [("request_tools", "shelf_3")] * 2
    assert turn["usage"]["by_purpose"]["selection"]["calls"] == 1
