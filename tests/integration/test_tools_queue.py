"""Tools that run as tasks of their own, through the running product."""

import os
import signal
from pathlib import Path

import pytest
from sqlalchemy import select

from demo.reply import Reply, ToolCall
from shared.tables import Turn
from shared.turn_state import TurnStatus
from tests.helpers.fold import assert_agrees, fold
from tests.helpers.model_server import ScriptedModel
from tests.helpers.product import Death, Product
from tests.helpers.talk import Store
from tests.helpers.tools import read_starts
from tests.helpers.waiting import wait_until

TIMEOUT_S = 30.0


@pytest.fixture
def world(fresh_product: Product) -> Product:
    """Give a product with tools of the tools queue, whose API and worker run."""
    fresh_product.environment["TURNMILL_TOOLS"] = ",".join(
        f"tests.helpers.tools:{name}"
        for name in ("burn", "burn_repeatable", "burn_briefly", "hold_once")
    )
    fresh_product.environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    fresh_product.start_api()
    fresh_product.start_worker()
    return fresh_product


def asks(*calls: tuple[str, Path]) -> Reply:
    return Reply(
        tool_calls=tuple(
            ToolCall(name=name, arguments={"gate": str(gate)}, id=f"call_{gate.name}")
            for name, gate in calls
        ),
    )


def results(model: ScriptedModel, call: int = 1) -> list[str]:
    return [item.text for item in model.calls[call].request.messages if item.role == "tool"]


def wait_started(gate: Path, times: int = 1) -> None:
    wait_until(
        lambda: len(read_starts(gate)) >= times,
        timeout_s=TIMEOUT_S,
        message="the tool was not started",
    )


def wait_parked(store: Store, turn_id: str) -> None:
    """Wait until no worker holds the turn any more."""
    held = select(Turn.lease_owner).where(Turn.id == turn_id)
    wait_until(
        lambda: store.run(lambda connection: connection.execute(held).scalar_one()) is None,
        timeout_s=TIMEOUT_S,
        message="the turn is held",
    )


def test_round_with_both_kinds_of_calls(
    world: Product,
    model: ScriptedModel,
    tmp_path: Path,
) -> None:
    """Results come in call order, and the turn is let go of while its calls run elsewhere."""
    gates = [tmp_path / name for name in "abc"]
    model.respond_with(
        asks(("burn", gates[0]), ("hold_once", gates[1]), ("burn", gates[2])),
        # Three calls are enough for the answer to be checked once.
        Reply(text="brief"),
        Reply(text="brief"),
        Reply(text="All is burned."),
    )
    world.start_tools_worker()
    with world.client() as client, Store(world) as store:
        stream = client.stream_turn("burn")
        turn_id = next(iter(stream)).data["turn_id"]
        for gate in gates:
            wait_started(gate)
        gates[1].touch()
        wait_parked(store, turn_id)
        gates[2].touch()
        stream.read_until(
            lambda event: (event.data.get("observation") or "").startswith("burned"),
        )
        gates[0].touch()
        events = stream.read_all()
        turn = client.get_turn(turn_id)

    assert (turn["status"], turn["answer"]) == (TurnStatus.COMPLETED, "All is burned.")
    first, second, third = results(model)
    assert second == "the gate is open"
    assert first.startswith("burned in process ")
    assert third.startswith("burned in process ")
    # Each has a process of its own.
    assert first != third
    assert turn["attempt"] == 2
    assert_agrees(fold(events), turn)


def test_nobody_runs_tools_until_a_worker_comes(
    world: Product,
    model: ScriptedModel,
    tmp_path: Path,
) -> None:
    """The message is lost with the broker; the sweep rings again."""
    gate = tmp_path / "gate"
    gate.touch()
    model.respond_with(asks(("burn", gate)), Reply(text="brief"), Reply(text="Burned."))
    with world.client() as client:
        turn_id = client.post_turn("burn")["id"]
        wait_until(
            lambda: client.get_turn(turn_id)["steps"],
            timeout_s=TIMEOUT_S,
            message="no tool call",
        )
        world.start_tools_worker()
        turn = client.get_turn(turn_id, wait_s=TIMEOUT_S)

    assert turn["status"] == TurnStatus.COMPLETED
    assert len(read_starts(gate)) == 1


@pytest.mark.parametrize(("tool", "starts"), [("burn", 1), ("burn_repeatable", 2)])
def test_tools_worker_is_killed(
    world: Product,
    model: ScriptedModel,
    tmp_path: Path,
    tool: str,
    starts: int,
) -> None:
    gate = tmp_path / "gate"
    model.respond_with(asks((tool, gate)), Reply(text="brief"), Reply(text="The end."))
    worker = world.start_tools_worker("first")
    with world.client() as client:
        stream = client.stream_turn("burn")
        wait_started(gate)
        os.killpg(worker.pid, signal.SIGKILL)
        world.start_tools_worker("second")
        if starts > 1:
            wait_started(gate, starts)
            gate.touch()
        events = stream.read_all()
        turn = client.get_turn(events[0].data["turn_id"])

    assert turn["status"] == TurnStatus.COMPLETED
    assert len(read_starts(gate)) == starts
    if starts == 1:
        assert "whether it took effect is not known" in results(model)[0]
    else:
        assert results(model)[0].startswith("burned in process ")
    assert_agrees(fold(events), turn)


def test_call_that_takes_too_long_ends_with_its_process(
    world: Product,
    model: ScriptedModel,
    tmp_path: Path,
) -> None:
    """Its function cannot be stopped, so the process goes; the next call has another one."""
    stuck, gate = tmp_path / "stuck", tmp_path / "gate"
    gate.touch()
    model.respond_with(
        asks(("burn_briefly", stuck)),
        asks(("burn", gate)),
        Reply(text="brief"),
        Reply(text="The end."),
    )
    world.environment["TURNMILL_TOOL_PROCESSES"] = "1"
    world.start_tools_worker()
    with world.client() as client:
        with client.stream_turn("burn") as stream:
            events = stream.read_all()
        turn = client.get_turn(events[0].data["turn_id"])

    assert turn["status"] == TurnStatus.COMPLETED
    assert "took longer than 1 s" in results(model)[0]
    assert results(model, 2)[1].startswith("burned in process ")
    assert_agrees(fold(events), turn)


def test_cancel_does_not_wait_for_the_call(
    world: Product,
    model: ScriptedModel,
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    model.respond_with(asks(("burn", gate)))
    world.environment["TURNMILL_TOOL_PROCESSES"] = "1"
    world.start_tools_worker()
    with world.client() as client:
        stream = client.stream_turn("burn")
        wait_started(gate)
        turn_id = next(iter(stream)).data["turn_id"]
        wait_until(
            lambda: client.cancel(turn_id)["status"] == TurnStatus.CANCELLED,
            timeout_s=TIMEOUT_S,
            message="the turn goes on",
        )
        events = stream.read_all()
        turn = client.get_turn(turn_id)

        # The one process is free again: it gave the call up, which nobody waits for.
        free = tmp_path / "free"
        free.touch()
        model.respond_with(asks(("burn", free)), Reply(text="brief"), Reply(text="Burned."))
        client.post_turn("one more", conversation_id=turn["conversation_id"])
        wait_started(free)

    assert turn["status"] == TurnStatus.CANCELLED
    assert "whether it took effect is not known" in turn["steps"][0]["error"]
    assert_agrees(fold(events), turn)


@pytest.mark.parametrize("fresh_product", ["postgres"], indirect=True)
def test_worker_of_the_turn_is_killed_while_its_calls_run(
    world: Product,
    model: ScriptedModel,
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    model.respond_with(asks(("burn", gate)), Reply(text="brief"), Reply(text="Burned."))
    world.start_tools_worker()
    with world.client() as client, Store(world) as store:
        turn_id = client.post_turn("burn")["id"]
        wait_started(gate)
        wait_parked(store, turn_id)
        world.processes[1].die(Death.KILL)
        gate.touch()
        world.start_worker("other")
        turn = client.get_turn(turn_id, wait_s=TIMEOUT_S)

    assert (turn["status"], turn["answer"]) == (TurnStatus.COMPLETED, "Burned.")
    assert len(read_starts(gate)) == 1
