"""Plans as models write them."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from workers.dag.plan import (
    MAX_ID_CHARS,
    MAX_STEPS,
    Plan,
    PlanAnswer,
    PlannedStep,
    PlanRefusedError,
    find_cycle,
    read_plan,
)


def read(*steps: dict[str, Any], finished: tuple[str, ...] = ()) -> Plan:
    return read_plan(PlanAnswer.model_validate({"steps": list(steps)}), finished)


def step(step_id: object, *dependencies: object, **fields: object) -> dict[str, Any]:
    return {"id": step_id, "task": f"Do {step_id}.", "dependencies": list(dependencies), **fields}


def test_plan_stays_as_it_was_written() -> None:
    plan = read(step("a"), step("b", "a", tool_hint="calculator", model_hint="fast"))
    assert plan == Plan(
        steps=(
            PlannedStep(id="a", task="Do a."),
            PlannedStep(
                id="b",
                task="Do b.",
                dependencies=("a",),
                tool_hint="calculator",
                model_hint="fast",
            ),
        ),
    )


@pytest.mark.parametrize(
    "written",
    [{"id": "a", "task": "Do a."}, {"steps": {"id": "a", "task": "Do a."}}],
)
def test_single_step_is_a_plan(written: dict[str, object]) -> None:
    assert read_plan(PlanAnswer.model_validate(written)).steps == (
        PlannedStep(id="a", task="Do a."),
    )


@pytest.mark.parametrize(
    ("written", "dependencies"),
    [(None, ()), ("1, 2", ("1", "2")), (1, ("1",)), ([1, 2, 1], ("1", "2")), ("", ())],
)
def test_ids_may_be_numbers_and_lists_may_be_words(
    written: object, dependencies: tuple[str, ...]
) -> None:
    plan = read(step(1), step(2), {"id": 3, "task": "Do it.", "dependencies": written})
    assert plan.steps[2].dependencies == dependencies


def test_second_step_of_a_name_is_renamed_and_the_first_is_meant() -> None:
    plan = read(step("a"), step("a"), step("a"), step("b", "a"))
    assert [it.id for it in plan.steps] == ["a", "a-2", "a-3", "b"]
    assert plan.steps[3].dependencies == ("a",)
    assert plan.notes == (
        "a second step a was renamed a-2",
        "a second step a was renamed a-3",
    )


def test_dependency_that_does_not_exist_is_left_out() -> None:
    plan = read(step("a", "ghost"), step("b", "a"))
    assert plan.steps[0].dependencies == ()
    assert plan.notes == ("step a does not depend on ghost: there is no such step",)


def test_long_ids_are_cut_and_stay_apart() -> None:
    long = "x" * 100
    plan = read(step(long), step(long), step("b", long))
    first, second, third = plan.steps
    assert len({first.id, second.id}) == 2
    assert max(len(first.id), len(second.id)) <= MAX_ID_CHARS
    assert third.dependencies == (first.id,)


def test_step_without_an_id_gets_one() -> None:
    assert [it.id for it in read(step(" "), step("b")).steps] == ["s1", "b"]


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([step("a", "a")], "wait for each other: a needs a"),
        ([step("a", "b"), step("b", "a")], "wait for each other: a needs b needs a"),
        (
            [step("s"), step("a", "c", "s"), step("b", "a"), step("c", "b")],
            "a needs c needs b needs a",
        ),
        ([{"id": "a", "task": "  "}], "step a has no task"),
        ([step("a", reuse="b")], "step a reuses b, which is no finished step"),
        ([step(number) for number in range(MAX_STEPS + 1)], "7 steps: at most 6"),
    ],
)
def test_plan_that_cannot_be_run_is_refused(steps: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(PlanRefusedError, match=reason):
        read(*steps)


def test_finished_step_may_stand_for_a_task() -> None:
    plan = read({"id": "a", "reuse": "old"}, step("b", "a"), finished=("old",))
    assert plan.steps[0] == PlannedStep(id="a", task="", reuse="old")


@pytest.mark.parametrize("written", [{}, {"steps": []}, {"steps": "none"}, {"steps": [{}]}])
def test_what_is_no_plan_does_not_fit(written: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        PlanAnswer.model_validate(written)


@given(
    st.lists(
        st.tuples(st.integers(0, 11), st.frozensets(st.integers(0, 11), max_size=4)),
        max_size=12,
        unique_by=lambda pair: pair[0],
    )
)
def test_cycle_is_found_if_and_only_if_no_order_works(
    graph: list[tuple[int, frozenset[int]]],
) -> None:
    names = {name for name, _ in graph}
    steps = [
        PlannedStep(id=str(name), task="x", dependencies=tuple(map(str, needs & names)))
        for name, needs in graph
    ]
    done: set[str] = set()
    for _ in steps:
        done |= {it.id for it in steps if done.issuperset(it.dependencies)}
    cycle = find_cycle(steps)
    assert bool(cycle) == (len(done) < len(steps))
    by_id = {it.id: it for it in steps}
    assert all(needed in by_id[name].dependencies for name, needed in pairwise(cycle))
    assert not cycle or cycle[0] == cycle[-1]
