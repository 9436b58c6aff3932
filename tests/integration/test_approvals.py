"""Tool calls that a person has to approve, through the running product."""

from http import HTTPStatus
from pathlib import Path

import pytest

from demo.reply import Reply, ToolCall
from shared.turn_state import TurnStatus
from tests.helpers.client import EventStream, Json, RefusedError, TurnmillClient
from tests.helpers.fold import assert_agrees, fold
from tests.helpers.model_server import ScriptedModel
from tests.helpers.product import Death, Product
from tests.helpers.waiting import wait_until

TIMEOUT_S = 20.0


@pytest.fixture
def world(fresh_product: Product) -> Product:
    """Give a product with tools that have to be approved, whose API runs."""
    fresh_product.environment["TURNMILL_TOOLS"] = ",".join(
        f"tests.helpers.tools:{name}" for name in ("wipe", "wipe_far", "hold_once")
    )
    fresh_product.environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    fresh_product.start_api()
    return fresh_product


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Give the file that says what was wiped."""
    return tmp_path / "wiped"


def asks(notes: Path, *things: str, tool: str = "wipe") -> Reply:
    return Reply(
        tool_calls=tuple(
            ToolCall(name=tool, arguments={"notes": str(notes), "what": what}, id=f"call_{what}")
            for what in things
        ),
    )


def wiped(notes: Path) -> list[str]:
    return notes.read_text().splitlines() if notes.exists() else []


def wait_status(client: TurnmillClient, turn_id: str, status: TurnStatus) -> Json:
    wait_until(
        lambda: client.get_turn(turn_id)["status"] == status,
        timeout_s=TIMEOUT_S,
        message=lambda: f"the turn is not {status}: {client.get_turn(turn_id)}",
    )
    return client.get_turn(turn_id)


def read_approval(stream: EventStream, state: str) -> Json:
    found = stream.read_until(
        lambda event: event.event == "approval" and event.data["state"] == state,
    )
    return found.data


def results(model: ScriptedModel, call: int) -> list[str]:
    """Return what a call of the model was told of its tools."""
    return [item.text for item in model.calls[call].request.messages if item.role == "tool"]


def test_approved_call_runs_in_another_worker(
    world: Product,
    model: ScriptedModel,
    notes: Path,
) -> None:
    """The turn waits without a worker: the one that asked is gone when the answer comes."""
    model.respond_with(asks(notes, "disk"), Reply(text="brief"), Reply(text="It is wiped."))
    first = world.start_worker("first")
    with world.client() as client:
        stream = client.stream_turn("wipe the disk")
        asked = read_approval(stream, "waiting")
        turn_id = asked["turn_id"]
        waiting = wait_status(client, turn_id, TurnStatus.WAITING)
        first.die(Death.KILL)
        assert wiped(notes) == []
        world.start_worker("second")

        decided = client.decide(turn_id, asked["tool_call_id"], approve=True)
        events = stream.read_all()
        turn = client.get_turn(turn_id)

    assert (asked["tool_name"], asked["args"]["what"]) == ("wipe", "disk")
    assert waiting["approvals"][0]["tool_call_id"] == asked["tool_call_id"]
    assert decided["state"] == "approved"
    assert (turn["status"], turn["answer"]) == (TurnStatus.COMPLETED, "It is wiped.")
    assert wiped(notes) == ["disk"]
    assert results(model, 1) == ["wiped disk"]
    # Waiting costs no crash: the kill hit nobody.
    assert turn["attempt"] == 2
    assert_agrees(fold(events), turn)


def test_refusal_is_what_the_model_sees(world: Product, model: ScriptedModel, notes: Path) -> None:
    model.respond_with(asks(notes, "disk"), Reply(text="brief"), Reply(text="It is still there."))
    world.start_worker()
    with world.client() as client:
        stream = client.stream_turn("wipe the disk")
        asked = read_approval(stream, "waiting")
        turn_id = asked["turn_id"]
        call_id = asked["tool_call_id"]
        client.decide(turn_id, call_id, approve=False, reason="not that one")
        events = stream.read_all()
        turn = client.get_turn(turn_id)
        again = client.decide(turn_id, call_id, approve=False)
        with pytest.raises(RefusedError) as other:
            client.decide(turn_id, call_id, approve=True)
        with pytest.raises(RefusedError) as unknown:
            client.decide(turn_id, "tool_none", approve=True)

    assert wiped(notes) == []
    assert results(model, 1) == ["The call was refused: not that one"]
    assert turn["approvals"][0]["state"] == "refused"
    assert_agrees(fold(events), turn)
    # The same decision passes again, another one is too late.
    assert again["reason"] == "not that one"
    assert other.value.status == HTTPStatus.CONFLICT
    assert unknown.value.status == HTTPStatus.NOT_FOUND


def test_round_goes_on_when_all_calls_are_decided(
    world: Product,
    model: ScriptedModel,
    notes: Path,
) -> None:
    model.respond_with(asks(notes, "a", "b", "c"), Reply(text="brief"), Reply(text="Done."))
    world.start_worker()
    with world.client() as client:
        turn_id = client.post_turn("wipe them")["id"]
        waiting = wait_status(client, turn_id, TurnStatus.WAITING)
        ids = [item["tool_call_id"] for item in waiting["approvals"]]
        client.decide(turn_id, ids[2], approve=True)
        client.decide(turn_id, ids[0], approve=False)
        assert client.get_turn(turn_id)["status"] == TurnStatus.WAITING
        assert wiped(notes) == []
        client.decide(turn_id, ids[1], approve=True)
        turn = client.get_turn(turn_id, wait_s=TIMEOUT_S)

    assert turn["status"] == TurnStatus.COMPLETED
    assert sorted(wiped(notes)) == ["b", "c"]
    assert results(model, 1) == ["The call was refused by the user.", "wiped b", "wiped c"]


def test_injected_message_refuses(world: Product, model: ScriptedModel, notes: Path) -> None:
    model.respond_with(asks(notes, "disk"), Reply(text="brief"), Reply(text="Something else."))
    world.start_worker()
    with world.client() as client:
        stream = client.stream_turn("wipe the disk")
        turn_id = read_approval(stream, "waiting")["turn_id"]
        wait_status(client, turn_id, TurnStatus.WAITING)
        client.inject(turn_id, "no, tell me a joke")
        events = stream.read_all()
        turn = client.get_turn(turn_id)
        states = [item["state"] for item in client.injections(turn_id)]

    assert turn["status"] == TurnStatus.COMPLETED
    assert states == ["committed"]
    assert wiped(notes) == []
    assert results(model, 1) == ["The call was refused: user sent a message"]
    assert "tell me a joke" in model.calls[1].request.messages[-1].text
    assert_agrees(fold(events), turn)


def test_waiting_turn_is_cancelled_at_once(
    world: Product,
    model: ScriptedModel,
    notes: Path,
) -> None:
    model.respond_with(asks(notes, "disk"), Reply(text="after it"))
    world.start_worker()
    with world.client() as client:
        stream = client.stream_turn("wipe the disk")
        asked = read_approval(stream, "waiting")
        turn_id = asked["turn_id"]
        waiting = wait_status(client, turn_id, TurnStatus.WAITING)
        queued = client.post_turn("next", conversation_id=waiting["conversation_id"])
        turn = client.cancel(turn_id)
        events = stream.read_all()
        with pytest.raises(RefusedError) as late:
            client.decide(turn_id, asked["tool_call_id"], approve=True)
        after = client.get_turn(queued["id"], wait_s=TIMEOUT_S)

    assert turn["status"] == TurnStatus.CANCELLED
    assert turn["approvals"][0]["state"] == "expired"
    assert turn["steps"][0]["status"] == "done"
    assert_agrees(fold(events), turn)
    assert late.value.status == HTTPStatus.CONFLICT
    assert (after["status"], after["answer"]) == (TurnStatus.COMPLETED, "after it")
    assert wiped(notes) == []


def test_nobody_approves_in_time(world: Product, model: ScriptedModel, notes: Path) -> None:
    """The deadline of the turn, which is shorter, is put off while it waits."""
    world.environment["TURNMILL_APPROVAL_TIMEOUT_S"] = "4"
    world.environment["TURNMILL_TURN_TIMEOUT_S"] = "3"
    model.respond_with(asks(notes, "disk"), Reply(text="brief"), Reply(text="It is still there."))
    world.start_worker()
    with world.client() as client:
        with client.stream_turn("wipe the disk") as stream:
            events = stream.read_all()
        turn = client.get_turn(events[0].data["turn_id"])

    assert turn["status"] == TurnStatus.COMPLETED
    assert turn["approvals"][0]["state"] == "expired"
    assert "Nobody approved" in results(model, 1)[0]
    assert_agrees(fold(events), turn)


@pytest.mark.parametrize("fresh_product", ["postgres"], indirect=True)
def test_wrong_call_is_told_so_without_asking(
    world: Product,
    model: ScriptedModel,
    notes: Path,
) -> None:
    wrong = Reply(tool_calls=(ToolCall(name="wipe", arguments={"what": 3}, id="call_1"),))
    model.respond_with(wrong, Reply(text="brief"), Reply(text="It did not work."))
    world.start_worker()
    with world.client() as client:
        turn_id = client.post_turn("wipe the disk")["id"]
        turn = client.get_turn(turn_id, wait_s=TIMEOUT_S)

    assert turn["status"] == TurnStatus.COMPLETED
    assert turn["approvals"] == []
    assert "The arguments of wipe are wrong" in results(model, 1)[0]
    assert wiped(notes) == []


def test_approved_call_of_the_tools_queue(
    world: Product,
    model: ScriptedModel,
    notes: Path,
) -> None:
    model.respond_with(
        asks(notes, "disk", tool="wipe_far"), Reply(text="brief"), Reply(text="It is wiped.")
    )
    world.start_worker()
    world.start_tools_worker()
    with world.client() as client:
        stream = client.stream_turn("wipe the disk")
        asked = read_approval(stream, "waiting")
        client.decide(asked["turn_id"], asked["tool_call_id"], approve=True)
        events = stream.read_all()
        turn = client.get_turn(asked["turn_id"])

    assert turn["status"] == TurnStatus.COMPLETED
    assert wiped(notes) == ["disk"]
    assert results(model, 1)[0].startswith("wiped disk in process ")
    assert_agrees(fold(events), turn)
