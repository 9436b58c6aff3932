"""The limits of models through the running product: several workers, one model."""

import pytest
from redis import Redis
from sqlalchemy import select

from demo.reply import Fault, FaultKind, Reply
from shared.tables import Turn
from shared.turn_state import TurnStatus
from tests.helpers.client import Json
from tests.helpers.fold import assert_agrees, fold
from tests.helpers.model_server import RecordedCall, ScriptedModel
from tests.helpers.product import Product
from tests.helpers.talk import Store, assert_exact
from tests.helpers.waiting import wait_until

TIMEOUT_S = 60.0


@pytest.fixture
def world(fresh_product: Product) -> Product:
    """Give a product whose API runs."""
    fresh_product.start_api()
    return fresh_product


def most_at_once(calls: list[RecordedCall]) -> int:
    """Return how many calls ran at the same time."""
    changes = [(call.received_at_s, 1) for call in calls]
    changes += [(call.ended_at_s, -1) for call in calls if call.ended_at_s is not None]
    running, most = 0, 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most


def states(world: Product, turn_ids: list[str]) -> dict[str, str]:
    """Return of each turn: held, parked, or how it ended."""
    query = select(Turn.id, Turn.status, Turn.lease_until, Turn.not_before)
    with Store(world) as store:
        rows = store.run(lambda connection: list(connection.execute(query)))
    found = {}
    for row in rows:
        status = str(row.status)
        if row.status == TurnStatus.RUNNING:
            status = "held" if row.lease_until else "parked" if row.not_before else "released"
        found[row.id] = status
    return {turn_id: found[turn_id] for turn_id in turn_ids}


def wait_parked(world: Product, turn_ids: list[str], *, count: int) -> list[str]:
    """Wait until that many of the turns are parked at the same time, and return them."""
    parked: list[str] = []

    def look() -> bool:
        parked[:] = [it for it, state in states(world, turn_ids).items() if state == "parked"]
        return len(parked) >= count

    wait_until(look, timeout_s=TIMEOUT_S, message=lambda: str(states(world, turn_ids)))
    return parked


def post(world: Product, model: str, count: int) -> list[str]:
    """Post turns for a model and return their ids."""
    with world.client() as client:
        return [client.post_turn(f"Hello {n}", model=model)["id"] for n in range(count)]


def end(world: Product, turn_id: str) -> Json:
    """Return a turn once it has ended; what its events say agrees."""
    with world.client() as client:
        turn = client.get_turn(turn_id, wait_s=TIMEOUT_S)
        with client.events(turn_id) as stream:
            assert_agrees(fold(stream.read_all()), turn)
    return turn


def test_workers_together_keep_to_the_calls_at_once(world: Product, model: ScriptedModel) -> None:
    for name in ("one", "other"):
        world.start_worker(name, slots=8)
    with world.client() as client:
        client.put_model("narrow", max_in_flight=2)
    model.respond = lambda _request: Reply(text="Hello.", first_byte_s=0.2)
    turns = [end(world, turn_id) for turn_id in post(world, "narrow", 12)]
    assert [turn["status"] for turn in turns] == ["completed"] * 12
    assert (len(model.calls), most_at_once(model.calls)) == (12, 2)


def test_waiting_turns_give_their_slots_to_others(world: Product, model: ScriptedModel) -> None:
    """One model is full: its turns are parked, and those of another are answered meanwhile."""
    world.environment["LLM_QUEUE_TIMEOUT_S"] = "0.5"
    world.start_worker(slots=2)
    with world.client() as client:
        client.put_model("narrow", max_in_flight=1)
        client.put_model("wide")
        with model.hold(lambda request: request.model == "narrow") as hold:
            narrow = post(world, "narrow", 1)
            hold.wait_reached()
            narrow += post(world, "narrow", 4)
            wait_parked(world, narrow, count=3)
            assert end(world, post(world, "wide", 1)[0])["status"] == "completed"
            cancelled = wait_parked(world, narrow, count=1)[0]
            with client.events(cancelled) as stream:
                stream.read_until(lambda event: event.data.get("reason") == "waiting_for_model")
            assert client.cancel(cancelled)["status"] == "cancelled"
            assert [call.request.model for call in model.calls] == ["narrow", "wide"]
        turns = {turn_id: end(world, turn_id) for turn_id in narrow}
    assert turns.pop(cancelled)["status"] == "cancelled"
    assert [turn["status"] for turn in turns.values()] == ["completed"] * 4
    calls = [call for call in model.calls if call.request.model == "narrow"]
    assert (len(calls), most_at_once(calls)) == (4, 1)
    with Store(world) as store:
        crashes = select(Turn.crashes).where(Turn.id.in_(narrow))
        assert not any(store.run(lambda connection: list(connection.execute(crashes).scalars())))


def test_usage_of_a_parked_turn_is_exact(world: Product, model: ScriptedModel) -> None:
    """Calls that had led to nothing when it was parked count too."""
    world.environment |= {"LLM_QUEUE_TIMEOUT_S": "0.3", "REACT_TOOL_SELECTION_THRESHOLD": "2"}
    world.start_worker(slots=4)
    # The first answer is not in the form that was asked for, and a second one has to wait.
    model.when(
        lambda request: request.model == "picker",
        Reply(text="I pick the calculator."),
        Reply(text='{"names": ["calculator"]}'),
    )
    with world.client() as client:
        client.put_model("picker", role="fast", tool_call=False, requests_per_minute=1)
        turn_ids = post(world, "plain", 1)
        wait_parked(world, turn_ids, count=1)
        client.put_model("picker", role="fast", tool_call=False)
    turn = end(world, turn_ids[0])
    assert turn["status"] == "completed"
    assert turn["usage"]["by_purpose"]["selection"]["calls"] == 2
    assert_exact(turn["usage"], model.calls)


def test_deadline_of_a_parked_turn(world: Product, model: ScriptedModel) -> None:
    world.environment |= {"LLM_QUEUE_TIMEOUT_S": "0.2", "TURNMILL_TURN_TIMEOUT_S": "3"}
    world.start_worker(slots=4)
    with world.client() as client:
        client.put_model("narrow", requests_per_minute=1)
    first, second = (post(world, "narrow", 1)[0] for _ in range(2))
    assert end(world, first)["status"] == "completed"
    turn = end(world, second)
    assert (turn["status"], turn["error"]["type"]) == ("failed", "deadline_exceeded")
    assert len(model.calls) == 1


def test_provider_that_asks_to_wait_is_left_alone_by_all(
    world: Product, model: ScriptedModel
) -> None:
    for name in ("one", "other"):
        world.start_worker(name, slots=2)
    too_many = Fault(kind=FaultKind.HTTP_STATUS, status=429, retry_after="2")
    model.respond_with(Reply(fault=too_many))
    first = post(world, "narrow", 1)
    model.wait_for_calls(1)
    wait_until(lambda: model.calls[0].ended_at_s is not None, message="429 was not sent")
    with world.client() as client:
        wait_until(
            lambda: is_gate_closed(world), message="the gate stays open", timeout_s=TIMEOUT_S
        )
        more = [client.post_turn(f"Hello {n}", model="narrow")["id"] for n in range(6)]
    assert [end(world, turn_id)["status"] for turn_id in first + more] == ["completed"] * 7
    refused, *others = model.calls
    assert refused.ended_at_s is not None
    assert len(others) == 7
    assert min(call.received_at_s for call in others) - refused.ended_at_s > 1.8


def is_gate_closed(world: Product) -> bool:
    """Tell whether a provider is to be left alone."""
    with Redis.from_url(world.environment["TURNMILL_REDIS_URL"]) as redis:
        return bool(redis.keys("turnmill:limit:*:gate"))
