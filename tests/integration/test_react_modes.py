"""The whole loop in both modes: a model that calls tools, and one that writes JSON instead."""

import json
import uuid
from collections.abc import Iterator

import pytest

from demo.protocol import ChatRequest
from demo.reply import Reply, ToolCall
from shared.turn_state import TurnStatus
from tests.helpers.client import TurnmillClient
from tests.helpers.model_server import ScriptedModel
from tests.helpers.product import Product
from tests.helpers.sse import ServerEvent
from tests.helpers.talk import Talk, texts
from workers.model.json_mode import INSTRUCTIONS
from workers.react.notes import MARK

ANSWER = "There are 391 of them, as the calculator says."


class Mode:
    """How a model of one mode says things."""

    def __init__(self, talk: Talk, *, is_native: bool) -> None:
        self.talk = talk
        self.is_native = is_native

    def calls(self, name: str, arguments: object) -> Reply:
        """Return a reply that calls a tool. arguments: as text they are sent as they are."""
        if self.is_native:
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            return Reply(tool_calls=(ToolCall(name=name, arguments=text),))
        action = {"type": "tool_call", "tool_name": name, "tool_args": arguments}
        return Reply(text=json.dumps(action))

    def answers(self, text: str) -> Reply:
        """Return a reply that ends the loop."""
        if self.is_native:
            return Reply(text=text)
        return Reply(text=json.dumps({"type": "final_answer", "answer": text}))

    def script(self, *replies: Reply, synthesis: str = ANSWER) -> None:
        """Have the loop's calls answered so, one after the other; then the synthesis."""
        self.talk.when(is_loop_call, *replies)
        self.talk.when(lambda request: not is_loop_call(request), Reply(text=synthesis))

    @property
    def loop_requests(self) -> list[ChatRequest]:
        """The loop's requests so far."""
        return [call.request for call in self.talk.calls if is_loop_call(call.request)]

    def observations(self, request: ChatRequest) -> list[str]:
        """Return the results that a request shows."""
        if self.is_native:
            return [message.text for message in request.messages if message.role == "tool"]
        found = [text.partition("Observation: ") for text in texts(request)]
        return [text for head, mark, text in found if mark and not head]


def is_loop_call(request: ChatRequest) -> bool:
    return bool(request.tools) or INSTRUCTIONS in request.messages[0].text


def notes(request: ChatRequest) -> list[str]:
    return [text for text in texts(request) if text.startswith(MARK)]


@pytest.fixture(params=["native", "json"])
def mode(
    request: pytest.FixtureRequest, client: TurnmillClient, shared_model: ScriptedModel
) -> Iterator[Mode]:
    """Give a model that calls tools, and one that cannot."""
    is_native = request.param == "native"
    name = f"model-{uuid.uuid4().hex}"
    talk = Talk(client, shared_model, name, tool_call=is_native)
    yield Mode(talk, is_native=is_native)
    client.delete_model(name)


@pytest.fixture
def json_talk(client: TurnmillClient, shared_model: ScriptedModel) -> Iterator[Talk]:
    """Give a model that cannot call tools."""
    name = f"model-{uuid.uuid4().hex}"
    yield Talk(client, shared_model, name, tool_call=False)
    client.delete_model(name)


def add(number: int) -> dict[str, object]:
    return {"expression": f"{number} + 1"}


def test_greeting_is_one_call(mode: Mode) -> None:
    mode.script(mode.answers("Hello to you."))
    turn, events = mode.talk.say("Hello.")
    assert turn["answer"] == "Hello to you."
    assert len(mode.talk.calls) == 1
    assert answer_so_far(events) == "Hello to you."


def answer_so_far(events: list[ServerEvent]) -> str:
    text = ""
    for event in events:
        if event.event == "answer" and event.data["status"] == "delta":
            text = text[: event.data["offset"]] + event.data["content"]
    return text


def test_results_of_tools_lead_to_the_answer(mode: Mode) -> None:
    mode.script(
        mode.calls("calculator", {"expression": "17 * 23"}),
        mode.calls("calculator", {"expression": "391 + 1"}),
        mode.answers("391"),
    )
    turn, _ = mode.talk.say("How many are there?")

    assert turn["answer"] == ANSWER
    assert mode.observations(mode.loop_requests[-1]) == ["391", "392"]
    assert [step["observation"] for step in turn["steps"]] == ["391", "392"]
    synthesis = mode.talk.calls[-1].request
    assert "How many are there?" in synthesis.last_user_text
    assert "392" in synthesis.last_user_text
    assert INSTRUCTIONS not in texts(synthesis)[0]


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("no_such_tool", {}, "no_such_tool"),
        ("calculator", {"formula": "1"}, "expression"),
        ("calculator", {"expression": 7}, "expression"),
        ("calculator", "{not json", "expression"),
        ("calculator", {"expression": "1/0"}, "zero"),
    ],
)
def test_bad_call_is_an_observation(mode: Mode, name: str, arguments: object, says: str) -> None:
    mode.script(mode.calls(name, arguments), mode.answers("It did not work."))
    turn, _ = mode.talk.say("Try it.")

    assert turn["status"] == TurnStatus.COMPLETED
    (observation,) = mode.observations(mode.loop_requests[-1])
    assert says in observation or "arguments" in observation
    assert turn["steps"][0]["error"]


@pytest.mark.parametrize("numbers_calls", [True, False])
@pytest.mark.parametrize("call_id", ["call_1", None], ids=["one id", "two ids"])
def test_calls_that_share_an_id_or_index_are_two(
    client: TurnmillClient, shared_model: ScriptedModel, call_id: str | None, *, numbers_calls: bool
) -> None:
    talk = Talk(client, shared_model, f"model-{uuid.uuid4().hex}")
    mode = Mode(talk, is_native=True)
    both = tuple(
        ToolCall(name="calculator", arguments={"expression": text}, id=call_id)
        for text in ("1 + 1", "2 + 2")
    )
    mode.script(Reply(tool_calls=both, numbers_calls=numbers_calls), mode.answers("2 and 4"))
    turn, _ = talk.say("How many are there?")
    assert [step["observation"] for step in turn["steps"]] == ["2", "4"]
    results = [message for message in mode.loop_requests[-1].messages if message.role == "tool"]
    assert [message.text for message in results] == ["2", "4"]
    assert len({message.tool_call_id for message in results}) == 2
    client.delete_model(talk.model)


@pytest.mark.parametrize(
    "form",
    [
        "```json\n{}\n```",
        "I will look it up. {} Done.",
        '{}\n{{"type": "final_answer", "answer": "7"}}',
    ],
    ids=["fenced", "with words around it", "with an imagined answer after it"],
)
def test_first_object_of_an_answer_is_its_action(json_talk: Talk, form: str) -> None:
    mode = Mode(json_talk, is_native=False)
    action = mode.calls("calculator", {"expression": "17 * 23"})
    text = form.format("".join(action.text_pieces))
    mode.script(Reply(text=text), mode.answers("391"))
    turn, _ = json_talk.say("How many are there?")
    assert [step["observation"] for step in turn["steps"]] == ["391"]
    assert mode.observations(mode.loop_requests[-1]) == ["391"]
    assert turn["answer"] == ANSWER


def test_third_identical_call_is_warned_of(mode: Mode) -> None:
    call = mode.calls("calculator", {"expression": "1 + 1"})
    mode.script(call, call, call, mode.answers("2"), mode.answers("2"))
    mode.talk.say("Add it up.")

    noted = [notes(request) for request in mode.loop_requests]
    assert noted[:3] == [[], [], []]
    (warning,) = noted[3]
    assert "calculator was called 3 times" in warning


def test_six_calls_are_looked_back_on_and_the_answer_is_checked_once(mode: Mode) -> None:
    calls = [mode.calls("calculator", add(number)) for number in range(7)]
    mode.script(*calls, mode.answers("First try."), mode.answers("Second try."))
    turn, _ = mode.talk.say("Add them all up.")

    requests = mode.loop_requests
    assert len(requests) == 9
    assert [len(notes(request)) for request in requests] == [0, 0, 0, 0, 0, 0, 1, 1, 2]
    look_back, check = notes(requests[-1])
    assert "6 tool calls" in look_back
    assert "Add them all up." in look_back
    assert "check it against the request" in check
    assert "First try." in texts(requests[-1])
    assert "Second try." in texts(mode.talk.calls[-1].request)[-1]
    assert turn["answer"] == ANSWER
    assert turn["usage"]["by_purpose"]["loop"]["calls"] == 9


def test_injected_message_comes_after_the_results(mode: Mode, shared_model: ScriptedModel) -> None:
    mode.script(mode.calls("calculator", add(1)), mode.answers("done"))
    talk = mode.talk
    first = shared_model.hold(lambda request: request.model == talk.model)
    with first:
        turn = talk.client.post_turn("Add.", model=talk.model)
        first.wait_reached()
        talk.client.inject(turn["id"], "And subtract.")
    turn = talk.client.get_turn(turn["id"], wait_s=20)

    assert turn["status"] == TurnStatus.COMPLETED
    last = texts(mode.loop_requests[-1])
    assert last[-1].endswith("And subtract.")
    assert last[-2].removeprefix("Observation: ") == "2"


def test_refusal_of_the_model_is_its_answer(mode: Mode) -> None:
    mode.script(mode.answers("I'm sorry, but I can't help with that."))
    turn, _ = mode.talk.say("Do something bad.")
    assert turn["answer"] == "I'm sorry, but I can't help with that."


def test_empty_answer_is_asked_for_again(mode: Mode) -> None:
    mode.script(mode.answers(""), mode.answers("Here it is."))
    turn, _ = mode.talk.say("Say it.")
    assert turn["answer"] == "Here it is."
    assert len(mode.talk.calls) == 2


def test_answer_at_the_output_limit_stands_as_it_is(mode: Mode) -> None:
    cut = Reply(text="It begins well and", finish_reason="length")
    mode.script(cut, mode.answers("It begins well and"))
    turn, _ = mode.talk.say("Tell me a story.")
    assert turn["answer"] == "It begins well and"


def test_text_is_asked_for_as_json_once(json_talk: Talk) -> None:
    action = json.dumps({"type": "final_answer", "answer": "It is 2."})
    json_talk.when(is_loop_call, Reply(text="It is 2, I think."), Reply(text=action))

    turn, events = json_talk.say("How many?")

    assert turn["answer"] == "It is 2."
    assert turn["iterations"] == 2
    second = json_talk.calls[1].request
    assert texts(second)[-2] == "It is 2, I think."
    assert "not one JSON object" in texts(second)[-1]
    assert second.response_format == "json_object"
    # Nothing that was not accepted was published.
    assert answer_so_far(events) == "It is 2."


def test_text_that_stays_text_is_the_answer(json_talk: Talk) -> None:
    json_talk.when(is_loop_call, Reply(text="It is 2."), Reply(text="It is 2, as I said."))
    turn, _ = json_talk.say("How many?")
    assert turn["answer"] == "It is 2, as I said."
    assert len(json_talk.calls) == 2


@pytest.mark.parametrize("fresh_product", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("synthesis", "with_tool", "answer", "calls"),
    [
        ("auto", False, "brief", 1),
        ("auto", True, ANSWER, 3),
        ("always", False, ANSWER, 2),
        ("always", True, ANSWER, 3),
        ("never", False, "brief", 1),
        ("never", True, "brief", 2),
    ],
)
def test_who_writes_the_answer_is_a_setting(
    fresh_product: Product,
    model: ScriptedModel,
    synthesis: str,
    *,
    with_tool: bool,
    answer: str,
    calls: int,
) -> None:
    fresh_product.environment["REACT_SYNTHESIS"] = synthesis
    fresh_product.start_api()
    fresh_product.start_worker()
    call = ToolCall(name="calculator", arguments={"expression": "1 + 1"})
    tools = [Reply(text="Let me see.", tool_calls=(call,))] if with_tool else []
    model.when(is_loop_call, *tools, Reply(text="brief"))
    model.when(lambda request: not is_loop_call(request), Reply(text=ANSWER))
    with fresh_product.client() as client:
        turn, events = Talk(client, model, "one").say("How many?")

    assert turn["answer"] == answer
    assert answer_so_far(events) == answer
    assert len(model.calls) == calls


@pytest.mark.parametrize("fresh_product", ["sqlite"], indirect=True)
def test_loop_without_an_end_is_ended_honestly(
    fresh_product: Product, model: ScriptedModel
) -> None:
    fresh_product.environment["REACT_MAX_ITERATIONS"] = "4"
    fresh_product.start_api()
    fresh_product.start_worker()
    call = ToolCall(name="calculator", arguments={"expression": "1 + 1"})
    model.when(is_loop_call, Reply(tool_calls=(call,)))
    model.when(lambda request: not is_loop_call(request), Reply(text=ANSWER))
    with fresh_product.client() as client:
        turn, _ = Talk(client, model, "one").say("How many?")

    assert turn["status"] == TurnStatus.COMPLETED
    assert turn["iterations"] == 4
    assert len(model.calls) == 5
    assert "stopped at its limit of 4 model calls" in model.calls[-1].request.last_user_text


@pytest.mark.parametrize(
    "unsupported",
    [("max_tokens",), ("stream_options",), ("tools",), ("max_tokens", "stream_options", "tools")],
)
def test_parameters_that_a_provider_refuses_are_done_without(
    client: TurnmillClient, unsupported: tuple[str, ...]
) -> None:
    with ScriptedModel(unsupported=unsupported) as server:
        name = f"model-{uuid.uuid4().hex}"
        mode = Mode(
            Talk(client, server, name, base_url=server.base_url),
            is_native="tools" not in unsupported,
        )
        mode.script(mode.calls("calculator", {"expression": "17 * 23"}), mode.answers("391"))
        turn, _ = mode.talk.say("How many?")
        again, _ = mode.talk.say("And now?")

        assert (turn["answer"], again["answer"]) == (ANSWER, "391")
        assert turn["steps"][0]["observation"] == "391"
        # Each is learned once, and remembered.
        assert len(server.configured_refusals) == len(unsupported)
        body = server.calls[-1].body
        assert not set(unsupported).intersection(body)
        assert "max_tokens" not in unsupported or body["max_completion_tokens"]
        used = turn["usage"]["by_purpose"]["loop"]
        assert used["estimated_calls"] == (used["calls"] if "stream_options" in unsupported else 0)
        client.delete_model(name)
