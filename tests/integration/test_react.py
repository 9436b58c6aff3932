"""ReAct turns against a model that does as it should, and one that does not."""

import uuid

import pytest

from demo.protocol import ChatRequest
from demo.reply import Fault, FaultKind, Reply, ToolCall
from shared.turn_state import TurnStatus
from tests.helpers.client import Json, TurnmillClient
from tests.helpers.fold import assert_agrees, fold
from tests.helpers.model_server import Predicate, ScriptedModel, mentions
from tests.helpers.sse import ServerEvent

SUM = ToolCall(name="calculator", arguments={"expression": "17 * 23"}, id="call_sum")


@pytest.fixture
def case() -> str:
    """Give a text that no other test's turns mention: the model is shared."""
    return f"case-{uuid.uuid4().hex}"


def answer(client: TurnmillClient, text: str) -> tuple[Json, list[ServerEvent]]:
    """Post a turn, read its events to the end, and check that they say what the turn says."""
    with client.stream_turn(text) as stream:
        events = stream.read_all()
    turn = client.get_turn(events[0].data["turn_id"])
    assert_agrees(fold(events), turn)
    return turn, events


def names(events: list[ServerEvent]) -> list[str]:
    return [
        f"{event.event}:{event.data.get('type') or event.data.get('status') or ''}".rstrip(":")
        for event in events
        if event.event != "answer" or event.data["status"] != "delta"
    ]


def both(text: str, other: Predicate) -> Predicate:
    return lambda request: mentions(text)(request) and other(request)


def in_loop(request: ChatRequest) -> bool:
    return bool(request.tools)


def test_greeting_costs_one_call(
    client: TurnmillClient, shared_model: ScriptedModel, case: str
) -> None:
    shared_model.when(mentions(case), Reply(text="Hello to you."))

    turn, events = answer(client, case)

    assert turn["answer"] == "Hello to you."
    assert turn["usage"]["by_purpose"]["loop"]["calls"] == 1
    assert names(events) == [
        "snapshot:queued",
        "status:running",
        "step:thinking",
        "answer:start",
        "answer:done",
        "step:answer",
        "done",
    ]


def test_tool_results_reach_the_model_in_call_order(
    client: TurnmillClient,
    shared_model: ScriptedModel,
    case: str,
) -> None:
    clock = ToolCall(name="current_time", arguments={}, id="call_time")
    shared_model.when(
        both(case, in_loop),
        Reply(text="both", tool_calls=(SUM, clock)),
        Reply(text="brief"),
    )
    shared_model.when(mentions(case), Reply(text="391, and late."))

    turn, _ = answer(client, case)

    second = [call.request for call in shared_model.calls if mentions(case)(call.request)][1]
    assert [message.tool_call_id for message in second.messages[-2:]] == ["call_sum", "call_time"]
    assert second.messages[-2].text == "391"
    assert turn["answer"] == "391, and late."
    assert turn["iterations"] == 2


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("no_such_tool", "{}", "no_such_tool"),
        ("calculator", "{not json", "arguments"),
        ("calculator", '{"formula": "1"}', "expression"),
        ("calculator", '{"expression": "1/0"}', "zero"),
    ],
)
def test_bad_tool_call_is_an_observation(
    client: TurnmillClient,
    shared_model: ScriptedModel,
    case: str,
    *,
    name: str,
    arguments: str,
    says: str,
) -> None:
    text = f"{case} {name} {arguments}"
    call = ToolCall(name=name, arguments=arguments, id="call_bad")
    shared_model.when(both(text, in_loop), Reply(tool_calls=(call,)), Reply(text="sorry"))
    shared_model.when(mentions(text), Reply(text="It could not be found out."))

    turn, _ = answer(client, text)

    (step,) = turn["steps"]
    assert says in step["error"]
    assert turn["status"] == TurnStatus.COMPLETED


def test_text_before_a_tool_call_is_taken_back(
    client: TurnmillClient,
    shared_model: ScriptedModel,
    case: str,
) -> None:
    shared_model.when(
        both(case, in_loop),
        Reply(text="Let me calculate that.", tool_calls=(SUM,)),
        Reply(text="brief"),
    )
    shared_model.when(mentions(case), Reply(text="It is 391."))

    turn, events = answer(client, case)

    assert turn["answer"] == "It is 391."
    restarts = [event.data["reason"] for event in events if event.data.get("status") == "restart"]
    assert restarts == ["tool_call"]


@pytest.mark.parametrize(
    "kind",
    [FaultKind.CUT, FaultKind.TRUNCATE, FaultKind.CORRUPT_CHUNK],
)
def test_broken_answer_is_asked_for_once_more_and_never_doubled(
    client: TurnmillClient,
    shared_model: ScriptedModel,
    case: str,
    kind: FaultKind,
) -> None:
    text = f"{case} {kind}"
    broken = Reply(text="one two three four", fault=Fault(kind=kind, after_chunks=3))
    shared_model.when(mentions(text), broken, Reply(text="one two three four"))

    turn, events = answer(client, text)

    assert turn["answer"] == "one two three four"
    assert any(event.data.get("status") == "restart" for event in events)


def test_broken_synthesis_falls_back_to_the_loops_own_answer(
    client: TurnmillClient,
    shared_model: ScriptedModel,
    case: str,
) -> None:
    shared_model.when(
        both(case, in_loop),
        Reply(tool_calls=(SUM,)),
        Reply(text="The loop says 391."),
    )
    broken = Reply(text="one two three", fault=Fault(kind=FaultKind.CUT, after_chunks=2))
    shared_model.when(mentions(case), broken)

    turn, _ = answer(client, case)

    assert turn["answer"] == "The loop says 391."


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, "model_authentication"), (400, "model_request"), (404, "model_request")],
)
def test_refusal_of_the_provider_fails_the_turn_with_a_sentence(
    client: TurnmillClient,
    shared_model: ScriptedModel,
    case: str,
    status: int,
    error: str,
) -> None:
    text = f"{case} {status}"
    fault = Fault(kind=FaultKind.HTTP_STATUS, status=status)
    shared_model.when(mentions(text), Reply(fault=fault))

    turn, _ = answer(client, text)

    assert turn["status"] == TurnStatus.FAILED
    assert turn["error"]["type"] == error
    messages = client.messages(turn["conversation_id"])
    assert [message["kind"] for message in messages] == ["input", "note"]


def test_conversation_goes_on_after_a_failed_turn(
    client: TurnmillClient,
    shared_model: ScriptedModel,
    case: str,
) -> None:
    shared_model.when(
        mentions(case),
        Reply(fault=Fault(kind=FaultKind.HTTP_STATUS, status=400)),
        Reply(text="Now it works."),
    )
    failed, _ = answer(client, f"{case} one")

    turn = client.post_turn(f"{case} two", conversation_id=failed["conversation_id"])
    turn = client.get_turn(turn["id"], wait_s=20)

    assert turn["answer"] == "Now it works."


def test_model_row_replaces_the_environment(
    client: TurnmillClient,
    shared_model: ScriptedModel,
    case: str,
) -> None:
    client.put_model("small", context_size=8_000, max_output_tokens=500)
    shared_model.when(mentions(case), Reply(text="From the small one."))

    turn = client.post_turn(case, model="small")
    turn = client.get_turn(turn["id"], wait_s=20)

    (call,) = [call for call in shared_model.calls if mentions(case)(call.request)]
    assert call.body["model"] == "small"
    assert call.body["max_tokens"] == 500
    assert turn["answer"] == "From the small one."


def test_unknown_tool_name_in_a_post_fails_with_what_there_is(
    client: TurnmillClient, case: str
) -> None:
    turn = client.post_turn(case, tools=["telescope"])
    turn = client.get_turn(turn["id"], wait_s=20)

    assert turn["status"] == TurnStatus.FAILED
    assert "telescope" in turn["error"]["message"]
    assert "calculator" in turn["error"]["message"]
