"""Folding events: whatever was seen, the same turn comes out."""

from typing import Any

import pytest

from tests.helpers.fold import assert_agrees, fold
from tests.helpers.sse import ProtocolViolationError, ServerEvent

USAGE = {"input_tokens": 3, "output_tokens": 5}


def event(name: str, **data: object) -> ServerEvent:
    return ServerEvent("1-0", name, {"turn_id": "turn_1", **data})


def delta(offset: int, content: str) -> ServerEvent:
    return event("answer", status="delta", offset=offset, content=content)


def snapshot(**data: object) -> ServerEvent:
    empty: dict[str, Any] = {
        "status": "running",
        "mode": "react",
        "attempt": 1,
        "answer_so_far": "",
        "steps": [],
        "injections": [],
        "compactions": [],
        "approvals": [],
    }
    return event("snapshot", **(empty | data))


def done(answer: str) -> ServerEvent:
    return event("done", answer=answer, iterations=1, usage=USAGE, elapsed_s=1.0, compacted=False)


def test_deltas_make_the_answer() -> None:
    turn = fold([snapshot(), event("answer", status="start"), delta(0, "Hel"), delta(3, "lo")])

    assert turn.answer_so_far == "Hello"
    assert turn.answer is None
    assert turn.is_open


def test_delta_sets_the_text_from_its_offset_on() -> None:
    assert fold([delta(0, "Hello"), delta(2, "y")]).answer_so_far == "Hey"
    assert fold([delta(0, "Hello"), delta(0, "Hello")]).answer_so_far == "Hello"


def test_delta_beyond_the_text_is_a_violation() -> None:
    with pytest.raises(ProtocolViolationError, match="text is missing"):
        fold([snapshot(answer_so_far="He"), delta(3, "lo")])


def test_restart_clears_the_answer() -> None:
    restart = event("answer", status="restart", reason="tool call")

    assert fold([delta(0, "Hello"), restart, delta(0, "Bye")]).answer_so_far == "Bye"


def test_snapshot_replaces_all_that_was_folded() -> None:
    step = event("step", type="iteration", status="start", iteration=1, tool_call_id="tool_1")
    before = [delta(0, "Hello"), step, event("status", status="queued", attempt=0)]

    assert fold([*before, snapshot(attempt=2)]) == fold([snapshot(attempt=2)])


@pytest.mark.parametrize("state", ["committed", "returned"])
def test_injection_that_is_settled_is_not_accepted_again(state: str) -> None:
    """Two processes publish them: that it was accepted may be told after what became of it."""

    def inject(state: str) -> ServerEvent:
        return event("inject", injection_id="inj_1", state=state, content="more")

    told_in_order = [inject("accepted"), inject(state)]
    settled = {"injection_id": "inj_1", "state": state, "content": "more"}

    assert fold(told_in_order).injections == [settled]
    assert fold(reversed(told_in_order)).injections == [settled]
    assert fold([snapshot(injections=[settled]), inject("accepted")]).injections == [settled]


def test_end_of_a_step_takes_the_place_of_its_start() -> None:
    def step(status: str, call: str, **data: object) -> ServerEvent:
        names = {"type": "iteration", "iteration": 1, "tool_call_id": call}
        return event("step", status=status, **names, **data)

    turn = fold([step("start", "a"), step("start", "b"), step("done", "a", observation="4")])

    assert [(row["tool_call_id"], row["status"]) for row in turn.steps] == [
        ("a", "done"),
        ("b", "start"),
    ]
    assert turn.steps[0]["observation"] == "4"


def test_injection_has_its_newest_state() -> None:
    def inject(name: str, state: str) -> ServerEvent:
        return event("inject", injection_id=name, state=state, content="wait")

    turn = fold([inject("a", "accepted"), inject("b", "accepted"), inject("a", "committed")])

    assert [row["state"] for row in turn.injections] == ["committed", "accepted"]


def test_repeated_compaction_counts_once() -> None:
    compact = event("compact", layer="guard", tokens_before=10, tokens_after=5)

    assert len(fold([compact, compact]).compactions) == 1


def test_done_agrees_with_the_turn() -> None:
    turn = fold([snapshot(), delta(0, "Hel"), done("Hello")])

    said: dict[str, Any] = {"status": "completed", "answer": "Hello", "usage": USAGE, "error": None}
    said |= {"steps": [], "approvals": []}
    assert_agrees(turn, said)
    with pytest.raises(AssertionError):
        assert_agrees(turn, said | {"answer": "Hell"})
    with pytest.raises(AssertionError):
        assert_agrees(turn, said | {"approvals": [{"tool_call_id": "tool_1"}]})


def test_steps_agree_but_for_why_they_were_taken() -> None:
    step = {"iteration": 1, "type": "iteration", "tool_call_id": "tool_1", "status": "done"}
    turn = fold([snapshot(), event("step", **step, reasoning="because"), done("Hello")])
    said: dict[str, Any] = {"status": "completed", "answer": "Hello", "usage": USAGE, "error": None}

    assert_agrees(turn, said | {"steps": [step], "approvals": []})
    with pytest.raises(AssertionError):
        assert_agrees(turn, said | {"steps": [step | {"error": "no"}], "approvals": []})


def test_failed_and_cancelled_end_without_an_answer() -> None:
    error = {"type": "model_error", "message": "no"}
    failed = fold([delta(0, "Hel"), event("failed", error=error)])
    cancelled = fold([delta(0, "Hel"), event("cancelled", by="api")])

    assert (failed.status, failed.error, failed.answer) == ("failed", error, None)
    assert (cancelled.status, cancelled.error, cancelled.answer) == ("cancelled", None, None)


def test_unknown_event_is_a_violation() -> None:
    with pytest.raises(ProtocolViolationError, match="unknown event"):
        fold([event("surprise")])
