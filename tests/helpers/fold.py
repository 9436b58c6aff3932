"""Folding a stream of events into what a reader knows of the turn."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from shared.turn_state import OPEN_STATUSES, InjectionState, TurnStatus
from tests.helpers.sse import ProtocolViolationError, ServerEvent

Json = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class FoldedTurn:
    """A turn as the events tell it."""

    status: str | None = None
    phase: str | None = None
    attempt: int | None = None
    # Text since the last restart; the whole answer once the turn is completed.
    answer_so_far: str = ""
    usage: Json | None = None
    error: Json | None = None
    # The newest `step` event per (iteration, type, tool_call_id), in order of first appearance.
    steps: list[Json] = field(default_factory=list)
    # The newest state per injection, in order of first appearance.
    injections: list[Json] = field(default_factory=list)
    compactions: list[Json] = field(default_factory=list)
    # The newest state per tool call that somebody has to approve.
    approvals: list[Json] = field(default_factory=list)

    @property
    def answer(self) -> str | None:
        """The answer, once the turn is completed."""
        return self.answer_so_far if self.status == TurnStatus.COMPLETED else None

    @property
    def is_open(self) -> bool:
        """Whether no terminal event was seen yet."""
        return self.status is None or self.status in OPEN_STATUSES


def fold(events: Iterable[ServerEvent]) -> FoldedTurn:
    """Fold the events of one reader, over all of its connections, in order.

    Raises ProtocolViolationError for an event that does not fit what came before.
    """
    turn = FoldedTurn()
    for event in events:
        _apply(turn, event)
    return turn


def assert_agrees(folded: FoldedTurn, turn: Json) -> None:
    """Check that a folded stream says what `GET /v1/turns/{id}` says of an ended turn."""
    assert folded.status == turn["status"]
    assert folded.error == turn["error"]
    assert folded.answer == turn["answer"]
    assert folded.usage == turn["usage"]
    assert folded.approvals == turn["approvals"]
    shown = {step["tool_call_id"]: step for step in folded.steps if step["type"] == "iteration"}
    for step in turn["steps"]:
        # A stream that was read from its start also says why a tool was called.
        told = {key: shown[step["tool_call_id"]].get(key) for key in step}
        assert told == step


def _apply(turn: FoldedTurn, event: ServerEvent) -> None:
    data = {name: value for name, value in event.data.items() if name != "turn_id"}
    match event.event:
        case "snapshot":
            _set_all(turn, data)
        case "status":
            turn.status, turn.attempt = data["status"], data["attempt"]
        case "phase":
            turn.phase = data["phase"]
        case "step" | "approval" | "inject":
            _take_row(turn, event.event, data)
        case "compact":
            if data not in turn.compactions:
                turn.compactions.append(data)
        case "answer":
            _apply_answer(turn, data)
        case "done" | "failed" | "cancelled":
            _apply_end(turn, event.event, data)
        case unknown:
            raise ProtocolViolationError(f"unknown event {unknown!r}: {event}")


def _take_row(turn: FoldedTurn, name: str, data: Json) -> None:
    if name == "step":
        _upsert(turn.steps, data, ("iteration", "type", "tool_call_id"))
    elif name == "approval":
        _upsert(turn.approvals, data, ("tool_call_id",))
    else:
        _advance(turn.injections, data)


def _apply_end(turn: FoldedTurn, name: str, data: Json) -> None:
    turn.error = data.get("error")
    turn.usage = data.get("usage")
    if name == "done":
        turn.status = TurnStatus.COMPLETED
        turn.answer_so_far = data["answer"]
    else:
        turn.status = TurnStatus(name)


def _set_all(turn: FoldedTurn, data: Json) -> None:
    turn.status = data["status"]
    turn.phase = data.get("phase")
    turn.attempt = data["attempt"]
    turn.answer_so_far = data["answer_so_far"]
    turn.usage = data.get("usage")
    turn.error = data.get("error")
    turn.steps = list(data["steps"])
    turn.injections = list(data["injections"])
    turn.compactions = list(data["compactions"])
    turn.approvals = list(data["approvals"])


def _apply_answer(turn: FoldedTurn, data: Json) -> None:
    match data["status"]:
        case "start":
            pass
        case "done":
            turn.answer_so_far = data.get("content", turn.answer_so_far)
        case "restart":
            turn.answer_so_far = ""
        case "delta":
            offset = data["offset"]
            if offset > len(turn.answer_so_far):
                raise ProtocolViolationError(f"text is missing before {data}: {turn}")
            turn.answer_so_far = turn.answer_so_far[:offset] + data["content"]
        case unknown:
            raise ProtocolViolationError(f"unknown status {unknown!r} of an answer: {data}")


def _advance(injections: list[Json], data: Json) -> None:
    """Take in an injection's state, unless a further one is known: `accepted` may come late."""
    known = [row for row in injections if row["injection_id"] == data["injection_id"]]
    if data["state"] != InjectionState.ACCEPTED or not known:
        _upsert(injections, data, ("injection_id",))


def _upsert(rows: list[Json], data: Json, key: tuple[str, ...]) -> None:
    wanted = [data.get(name) for name in key]
    for index, row in enumerate(rows):
        if [row.get(name) for name in key] == wanted:
            rows[index] = data
            return
    rows.append(data)
