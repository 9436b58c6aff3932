"""A worker dies in the middle of a turn; another one finishes it, and a reader misses nothing."""

import asyncio
import signal
import threading
from pathlib import Path

import pytest

from shared.turn_state import TurnStatus
from tests.faults.conftest import ANSWER, asks_for_tool, has_result, is_synthesis, script
from tests.helpers.async_client import AsyncTurnmillClient
from tests.helpers.fold import assert_agrees, fold
from tests.helpers.model_server import ScriptedModel
from tests.helpers.product import Death, Product, ProductProcess
from tests.helpers.sse import ServerEvent
from tests.helpers.tools import read_starts
from tests.helpers.waiting import wait_until

LEASE_S = 3.0
# A lost worker is made up for within a lease and this.
GRACE_S = 5.0
TIMEOUT_S = 30.0


class Reader:
    """Follows a turn in a thread, reconnecting as often as needed."""

    def __init__(self, product: Product, turn_id: str) -> None:
        self.events: list[ServerEvent] = []
        self._product = product
        self._turn_id = turn_id
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> list[ServerEvent]:
        """Wait for the terminal event and return all events."""
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), f"no end after {self.events[-3:]}"
        return self.events

    def _run(self) -> None:
        asyncio.run(self._follow())

    async def _follow(self) -> None:
        async with AsyncTurnmillClient(self._product.url) as client:
            await client.follow(self._turn_id, self.events, timeout_s=TIMEOUT_S)


@pytest.fixture
def world(fresh_product: Product) -> Product:
    """Give a product with the holding tools, whose API runs."""
    fresh_product.environment["TURNMILL_TOOLS"] = (
        "tests.helpers.tools:hold_once,tests.helpers.tools:hold_repeatable"
    )
    fresh_product.environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    fresh_product.start_api()
    return fresh_product


def lose(worker: ProductProcess, product: Product, death: Death) -> ProductProcess:
    """Let the worker die and start another one."""
    other = product.start_worker("second")
    worker.die(death)
    return other


def check_end(product: Product, turn_id: str, reader: Reader, *, answer: str = ANSWER) -> None:
    events = reader.finish()
    with product.client() as client:
        turn = client.get_turn(turn_id)
        messages = client.messages(turn["conversation_id"])
    assert turn["status"] == TurnStatus.COMPLETED
    assert turn["answer"] == answer
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert_agrees(fold(events), turn)


@pytest.mark.parametrize("death", [Death.KILL, Death.STOP], ids=lambda death: death.name)
def test_lost_in_a_model_call(
    world: Product,
    model: ScriptedModel,
    gate: Path,
    death: Death,
) -> None:
    """Dies while the second model call is open: the first is not repeated, the tool neither."""
    gate.touch()
    script(model, gate, "hold_once")
    worker = world.start_worker("first")
    hold = model.hold(has_result)
    with world.client() as client:
        turn_id = client.post_turn("open the gate")["id"]
    reader = Reader(world, turn_id)
    hold.wait_reached(TIMEOUT_S)

    lose(worker, world, death)

    wait_until(
        lambda: sum(has_result(call.request) for call in model.calls) == 2,
        timeout_s=LEASE_S + GRACE_S,
        message="the second worker does not call the model",
    )
    hold.release()
    check_end(world, turn_id, reader)
    assert sum(asks_for_tool(call.request) for call in model.calls) == 1
    assert len(read_starts(gate)) == 1


@pytest.mark.parametrize(
    ("tool", "starts"),
    [("hold_once", 1), ("hold_repeatable", 2)],
)
def test_lost_in_a_tool_call(
    world: Product,
    model: ScriptedModel,
    gate: Path,
    tool: str,
    starts: int,
) -> None:
    """Dies while a tool runs: it is run again only if it says that this is safe."""
    script(model, gate, tool)
    worker = world.start_worker("first")
    with world.client() as client:
        turn_id = client.post_turn("open the gate")["id"]
    reader = Reader(world, turn_id)
    wait_until(lambda: read_starts(gate), timeout_s=TIMEOUT_S, message="the tool never started")

    lose(worker, world, Death.KILL)

    if starts == 2:
        wait_until(
            lambda: len(read_starts(gate)) == 2,
            timeout_s=LEASE_S + GRACE_S,
            message="the tool is not run again",
        )
    gate.touch()
    check_end(world, turn_id, reader)
    ids = read_starts(gate)
    assert len(ids) == starts
    assert len(set(ids)) == 1, "a repeated call keeps its idempotency key"
    assert sum(asks_for_tool(call.request) for call in model.calls) == 1
    with world.client() as client:
        (step,) = client.get_turn(turn_id)["steps"]
    if starts == 1:
        assert "unknown" in step["error"]
    else:
        assert step["observation"] == "the gate is open"


def test_lost_in_the_synthesis(world: Product, model: ScriptedModel, gate: Path) -> None:
    """Dies with half of the answer streamed: it is written anew, and never shown doubled."""
    gate.touch()
    script(model, gate, "hold_once")
    worker = world.start_worker("first")
    hold = model.hold(is_synthesis, after_chunks=5)
    with world.client() as client:
        turn_id = client.post_turn("open the gate")["id"]
    reader = Reader(world, turn_id)
    hold.wait_reached(TIMEOUT_S)
    wait_until(
        lambda: any(event.event == "answer" for event in reader.events),
        timeout_s=TIMEOUT_S,
        message="no part of the answer came",
    )

    lose(worker, world, Death.KILL)
    wait_until(
        lambda: sum(is_synthesis(call.request) for call in model.calls) == 2,
        timeout_s=LEASE_S + GRACE_S,
        message="the second worker does not write the answer",
    )
    hold.release()

    check_end(world, turn_id, reader)
    assert sum(bool(call.request.tools) for call in model.calls) == 2, "the loop is not repeated"


def test_asked_to_leave_hands_over_without_a_crash(
    world: Product,
    model: ScriptedModel,
    gate: Path,
) -> None:
    """SIGTERM while a model call is open: another worker goes on, well before the lease's end."""
    gate.touch()
    script(model, gate, "hold_once")
    world.environment |= {"TURNMILL_LEASE_S": "60", "TURNMILL_DRAIN_S": "1"}
    worker = world.start_worker("first")
    hold = model.hold(has_result)
    with world.client() as client:
        turn_id = client.post_turn("open the gate")["id"]
    reader = Reader(world, turn_id)
    hold.wait_reached(TIMEOUT_S)

    lose(worker, world, Death.TERM)
    hold.release()

    check_end(world, turn_id, reader)
    # One for the first worker, one for the second: nobody was taken for lost.
    assert max(event.id.split("-")[0] for event in reader.events) == "2"


def test_paused_past_its_lease_writes_nothing_when_it_wakes(
    world: Product,
    model: ScriptedModel,
    gate: Path,
) -> None:
    """A worker sleeps past its lease and wakes after the turn has ended elsewhere."""
    gate.touch()
    script(model, gate, "hold_once")
    worker = world.start_worker("first")
    hold = model.hold(is_synthesis)
    with world.client() as client:
        turn_id = client.post_turn("open the gate")["id"]
    reader = Reader(world, turn_id)
    hold.wait_reached(TIMEOUT_S)
    lose(worker, world, Death.STOP)
    wait_until(
        lambda: sum(is_synthesis(call.request) for call in model.calls) == 2,
        timeout_s=LEASE_S + GRACE_S,
        message="the second worker does not write the answer",
    )
    hold.release()
    reader.finish()

    worker.resume()

    check_end(world, turn_id, reader)
    worker.die(Death.TERM)
    check_end(world, turn_id, reader)


def test_drained_before_its_tools_start(world: Product, model: ScriptedModel, gate: Path) -> None:
    """Asked to leave while the model is about to ask for a tool: another worker runs it."""
    gate.touch()
    script(model, gate, "hold_once")
    worker = world.start_worker("first")
    hold = model.hold(asks_for_tool)
    with world.client() as client:
        turn_id = client.post_turn("open the gate")["id"]
    reader = Reader(world, turn_id)
    hold.wait_reached(TIMEOUT_S)
    world.start_worker("second")

    worker.send(signal.SIGTERM)
    wait_until(
        lambda: "worker_draining" in worker.log_tail,
        timeout_s=TIMEOUT_S,
        message="the first worker does not drain",
    )
    hold.release()

    worker.wait()
    check_end(world, turn_id, reader)
    # Not safe to repeat, so a call on record as started would never have been run.
    assert len(read_starts(gate)) == 1
    assert sum(asks_for_tool(call.request) for call in model.calls) == 1
