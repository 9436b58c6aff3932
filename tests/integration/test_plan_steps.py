"""The steps of planned turns, in the database alone: who starts, who ends, who rings.

No broker: doorbells are lists, delivered twice, late, out of order or never, as a test says.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, update

from shared.clock import now
from shared.database import create_sync_engine
from shared.ids import TurnId
from shared.repositories import conversations, endings, plan_steps, turns
from shared.repositories.endings import CancelRequest
from shared.repositories.plan_steps import Advanced, ClaimedStep, NewStep
from shared.settings import Settings
from shared.tables import PlanStep
from shared.turn_state import OPEN_STEPS, Fence, StepState
from tests.helpers.interleave import interleave
from tests.helpers.posting import new_turn

LEASE_S = 60.0
CAP = 5
ROUND = 1
# Of one operation.
MOST_STATEMENTS = 6
DIAMOND = {"1": (), "2": ("1",), "3": ("1",), "4": ("2", "3")}


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_sync_engine(Settings.from_environment({"TURNMILL_DATABASE_URL": database_url}))
    yield engine
    engine.dispose()


def claim_turn(connection: Connection, turn_id: TurnId) -> turns.ClaimedTurn | None:
    return turns.claim_turn(
        connection, turn_id, owner="worker", lease_s=LEASE_S, turn_timeout_s=600
    )


def begin(
    connection: Connection, graph: dict[str, tuple[str, ...]], *, cap: int = CAP
) -> tuple[TurnId, Advanced]:
    """Write down a turn with a plan, which its worker has let go of."""
    turn = new_turn()
    conversations.insert_conversation(connection, turn.conversation_id, turn_count=1)
    turns.insert_turn(connection, turn, 1)
    assert claim_turn(connection, turn.id) is not None
    steps = [
        NewStep(step_id=name, task=f"Do {name}.", dependencies=needs)
        for name, needs in graph.items()
    ]
    advanced = plan_steps.add_plan(connection, Fence(turn.id, 1), ROUND, steps, cap=cap)
    return turn.id, advanced


def claim(connection: Connection, turn_id: TurnId, step_id: str) -> ClaimedStep | None:
    return plan_steps.claim_step(
        connection, turn_id, ROUND, step_id, owner="worker", lease_s=LEASE_S
    )


def complete(connection: Connection, step: ClaimedStep, *, cap: int = CAP) -> Advanced | None:
    return plan_steps.complete_step(
        connection, step.fence, f"result of {step.fence.step_id}", cap=cap
    )


def run(connection: Connection, turn_id: TurnId, step_id: str) -> Advanced:
    step = claim(connection, turn_id, step_id)
    assert step is not None
    advanced = complete(connection, step)
    assert advanced is not None
    return advanced


def states(connection: Connection, turn_id: TurnId) -> dict[str, StepState]:
    return {step.step_id: step.state for step in plan_steps.get_steps(connection, turn_id, ROUND)}


def test_step_is_made_ready_by_the_last_of_its_dependencies(engine: Engine) -> None:
    with engine.begin() as connection:
        turn_id, advanced = begin(connection, DIAMOND)
        assert advanced == Advanced(ready=("1",))
        assert claim(connection, turn_id, "2") is None
        assert run(connection, turn_id, "1").ready == ("2", "3")
        assert claim_turn(connection, turn_id) is None
        assert run(connection, turn_id, "3").ready == ()
        assert run(connection, turn_id, "2").ready == ("4",)
        step = claim(connection, turn_id, "4")
        assert step is not None
        assert step.results == {"2": "result of 2", "3": "result of 3"}
        assert complete(connection, step) == Advanced(is_over=True)
        assert claim_turn(connection, turn_id) is not None


def test_failed_step_blocks_those_that_need_it_and_no_others(engine: Engine) -> None:
    graph = {"c": ("b",), "a": (), "b": ("a",), "free": ()}
    with engine.begin() as connection:
        turn_id, _ = begin(connection, graph)
        step = claim(connection, turn_id, "a")
        assert step is not None
        advanced = plan_steps.fail_step(connection, step.fence, "it broke", cap=CAP)
        assert advanced == Advanced(skipped={"b": "a", "c": "a"})
        assert run(connection, turn_id, "free").is_over
        found = {
            step.step_id: step.error for step in plan_steps.get_steps(connection, turn_id, ROUND)
        }
    assert found == {
        "a": "it broke",
        "b": "blocked by step a",
        "c": "blocked by step a",
        "free": None,
    }


def test_no_more_run_at_once_than_may(engine: Engine) -> None:
    graph: dict[str, tuple[str, ...]] = {str(number): () for number in range(4)}
    with engine.begin() as connection:
        turn_id, advanced = begin(connection, graph, cap=2)
        assert advanced.ready == ("0", "1")
        steps = [claim(connection, turn_id, name) for name in graph]
        assert [step is not None for step in steps] == [True, True, False, False]
        first = steps[0]
        assert first is not None
        assert complete(connection, first, cap=2) == Advanced(ready=("2",))


def test_reused_result_counts_as_completed(engine: Engine) -> None:
    turn = new_turn()
    steps = [
        NewStep(step_id="old", task="", reuse="s1", result="known"),
        NewStep(step_id="new", task="Use it.", dependencies=("old",)),
    ]
    with engine.begin() as connection:
        conversations.insert_conversation(connection, turn.conversation_id, turn_count=1)
        turns.insert_turn(connection, turn, 1)
        assert claim_turn(connection, turn.id) is not None
        advanced = plan_steps.add_plan(connection, Fence(turn.id, 1), ROUND, steps, cap=CAP)
        assert advanced == Advanced(ready=("new",))
        step = claim(connection, turn.id, "new")
    assert step is not None
    assert step.results == {"old": "known"}


def lapse(connection: Connection, turn_id: TurnId, step_id: str) -> None:
    connection.execute(
        update(PlanStep)
        .where(PlanStep.turn_id == turn_id, PlanStep.step_id == step_id)
        .values(lease_until=now(-1.0))
    )


def test_lost_worker_s_step_is_claimed_again_and_its_end_is_refused(engine: Engine) -> None:
    with engine.begin() as connection:
        turn_id, _ = begin(connection, {"1": ()})
        lost = claim(connection, turn_id, "1")
        assert lost is not None
        assert claim(connection, turn_id, "1") is None
        lapse(connection, turn_id, "1")
        again = claim(connection, turn_id, "1")
        assert again is not None
        assert (again.crashes, again.fence.attempt) == (1, 2)
        assert complete(connection, lost) is None
        assert not plan_steps.renew_step(connection, lost.fence, lease_s=LEASE_S)
        assert complete(connection, again) == Advanced(is_over=True)
        assert complete(connection, again) is None


def test_step_that_was_let_go_of_is_claimed_without_a_crash(engine: Engine) -> None:
    with engine.begin() as connection:
        turn_id, _ = begin(connection, {"1": ()})
        step = claim(connection, turn_id, "1")
        assert step is not None
        assert plan_steps.release_step(connection, step.fence)
        assert not plan_steps.release_step(connection, step.fence)
        assert complete(connection, step) is None
        again = claim(connection, turn_id, "1")
    assert again is not None
    assert again.crashes == 0


def test_plan_that_is_given_up_lets_running_steps_finish(engine: Engine) -> None:
    with engine.begin() as connection:
        turn_id, _ = begin(connection, DIAMOND | {"free": ()})
        running = claim(connection, turn_id, "1")
        assert running is not None
        given_up = plan_steps.give_up_plan(connection, turn_id, ROUND)
        assert given_up is not None
        assert sorted(given_up.skipped) == ["2", "3", "4", "free"]
        assert not given_up.is_over
        assert claim(connection, turn_id, "free") is None
        assert complete(connection, running) == Advanced(is_over=True)


def test_nothing_is_claimed_or_ended_for_a_turn_that_was_cancelled(engine: Engine) -> None:
    with engine.begin() as connection:
        turn_id, _ = begin(connection, {"1": (), "2": ()})
        step = claim(connection, turn_id, "1")
        assert step is not None
        request = CancelRequest(by="api", reason=None)
        assert endings.request_cancel(connection, turn_id, request) is not None
        assert claim(connection, turn_id, "2") is None
        assert complete(connection, step) is None


@pytest.mark.parametrize("after", range(1, MOST_STATEMENTS + 1))
def test_last_two_that_end_together_ring_once(engine: Engine, after: int) -> None:
    with engine.begin() as connection:
        turn_id, _ = begin(connection, {"1": (), "2": ()})
        first, second = (claim(connection, turn_id, name) for name in "12")
    assert first is not None
    assert second is not None
    both = interleave(
        engine,
        lambda connection: complete(connection, first),
        lambda connection: complete(connection, second),
        after=after,
    )
    assert [both.first, both.second] == [Advanced(), Advanced(is_over=True)]


@pytest.mark.parametrize("after", range(1, MOST_STATEMENTS + 1))
def test_two_dependencies_that_end_together_ring_for_the_step_once(
    engine: Engine, after: int
) -> None:
    with engine.begin() as connection:
        turn_id, _ = begin(connection, {"1": (), "2": (), "3": ("1", "2")})
        first, second = (claim(connection, turn_id, name) for name in "12")
    assert first is not None
    assert second is not None
    both = interleave(
        engine,
        lambda connection: complete(connection, first),
        lambda connection: complete(connection, second),
        after=after,
    )
    assert [both.first, both.second] == [Advanced(), Advanced(ready=("3",))]


@pytest.mark.parametrize("after", range(1, MOST_STATEMENTS + 1))
def test_cap_that_is_reached_from_two_sides_holds(engine: Engine, after: int) -> None:
    graph: dict[str, tuple[str, ...]] = {str(number): () for number in range(6)}
    with engine.begin() as connection:
        turn_id, _ = begin(connection, graph, cap=2)
        first, second = (claim(connection, turn_id, name) for name in "01")
    assert first is not None
    assert second is not None
    both = interleave(
        engine,
        lambda connection: complete(connection, first, cap=2),
        lambda connection: complete(connection, second, cap=2),
        after=after,
    )
    assert [both.first, both.second] == [Advanced(ready=("2",)), Advanced(ready=("3",))]


@pytest.mark.parametrize("after", range(1, MOST_STATEMENTS + 1))
def test_step_that_is_claimed_twice_at_once_is_claimed_once(engine: Engine, after: int) -> None:
    with engine.begin() as connection:
        turn_id, _ = begin(connection, {"1": ()})
    both = interleave(
        engine,
        lambda connection: claim(connection, turn_id, "1"),
        lambda connection: claim(connection, turn_id, "1"),
        after=after,
    )
    assert both.first is not None
    assert both.second is None


@dataclass
class World:
    """One turn's run: its doorbells, and what was seen of its steps."""

    graph: dict[str, tuple[str, ...]]
    turn_id: TurnId
    bells: list[str]
    held: list[ClaimedStep] = field(default_factory=list)
    lost: list[ClaimedStep] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    rings: int = 0

    def take(self, connection: Connection, at: int, *, keep: bool) -> None:
        """Deliver a doorbell; keep: it is delivered once more."""
        step_id = self.bells[at] if keep else self.bells.pop(at)
        step = claim(connection, self.turn_id, step_id)
        if step is None:
            return
        assert set(self.graph[step_id]) <= set(self.completed)
        assert step_id not in (*self.completed, *self.failed)
        self.held.append(step)

    def end(self, connection: Connection, at: int, *, fails: bool) -> None:
        """End a step that is held."""
        step = self.held.pop(at)
        step_id = step.fence.step_id
        if fails:
            advanced = plan_steps.fail_step(connection, step.fence, "it broke", cap=CAP)
        else:
            advanced = complete(connection, step)
        assert advanced is not None
        (self.failed if fails else self.completed).append(step_id)
        self.note(advanced)

    def lose(self, connection: Connection, at: int) -> None:
        """Lose the worker of a step; its doorbell is rung again, as the sweep does."""
        step = self.held.pop(at)
        lapse(connection, self.turn_id, step.fence.step_id)
        self.lost.append(step)
        self.bells.append(step.fence.step_id)

    def note(self, advanced: Advanced) -> None:
        self.bells += advanced.ready
        self.rings += advanced.is_over


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    size = draw(st.integers(1, 12))
    names = draw(st.permutations([str(number) for number in range(size)]))
    return {
        name: tuple(draw(st.sets(st.sampled_from(names[:at]), max_size=3)) if at else ())
        for at, name in enumerate(names)
    }


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@hypothesis_settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(graph=graphs(), data=st.data())
def test_every_turn_ends_whatever_becomes_of_its_steps(
    engine: Engine, graph: dict[str, tuple[str, ...]], data: st.DataObject
) -> None:
    """Random failures, losses, delays, and doorbells twice, late and out of order."""
    order = dict(sorted(graph.items(), key=lambda _: data.draw(st.integers(0, 99))))
    with engine.begin() as connection:
        turn_id, advanced = begin(connection, order)
        world = World(order, turn_id, list(advanced.ready))
        for _ in range(200):
            if not world.bells and not world.held:
                break
            moves = ["take"] * bool(world.bells) + ["end", "fail", "lose"] * bool(world.held)
            move = data.draw(st.sampled_from(moves))
            if move == "take":
                at = data.draw(st.integers(0, len(world.bells) - 1))
                world.take(connection, at, keep=data.draw(st.booleans()))
            elif move == "lose" and len(world.lost) < 5:
                world.lose(connection, data.draw(st.integers(0, len(world.held) - 1)))
            elif move != "lose":
                at = data.draw(st.integers(0, len(world.held) - 1))
                world.end(connection, at, fails=move == "fail")
            assert len(world.held) <= CAP
        while world.bells or world.held:
            if world.held:
                world.end(connection, 0, fails=False)
            else:
                world.take(connection, 0, keep=False)
        for step in world.lost:
            assert complete(connection, step) is None
        assert world.rings == 1
        assert not set(states(connection, turn_id).values()) & set(OPEN_STEPS)
        assert len(world.completed) == len(set(world.completed))
        assert claim_turn(connection, turn_id) is not None
