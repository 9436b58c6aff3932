"""What the database knows of a turn, as events: its snapshot and its terminal event."""

from collections.abc import Iterable
from dataclasses import dataclass

import orjson
from sqlalchemy import Connection

from shared.events import (
    ARGUMENTS_CHARS,
    OBSERVATION_CHARS,
    Approval,
    Cancelled,
    Done,
    Event,
    Failed,
    Snapshot,
    Step,
)
from shared.ids import TurnId
from shared.repositories import injections, journal, tool_calls, turns
from shared.repositories.tool_calls import StoredToolCall
from shared.repositories.turns import TurnView
from shared.turn_state import FINISHED_STATES, OPEN_STATUSES, ApprovalState, TurnStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPicture:
    """A turn and its snapshot, read together."""

    turn: TurnView
    snapshot: Snapshot


def read_picture(connection: Connection, turn_id: TurnId) -> TurnPicture | None:
    """Read all that a snapshot shows; None if the turn is unknown."""
    turn = turns.get_turn(connection, turn_id)
    if turn is None:
        return None
    calls = tool_calls.get_tool_calls(connection, turn_id)
    stored = injections.list_injections(connection, turn_id)
    entries = journal.get_entries(connection, turn_id)
    snapshot = Snapshot(
        status=turn.status,
        mode=turn.mode,
        attempt=turn.attempt,
        answer_so_far=turn.answer or "",
        steps=describe_calls(calls),
        injections=[
            {"injection_id": item.id, "state": item.state, "content": item.content}
            for item in stored
        ],
        compactions=[
            journal.compaction_event(entry) for entry in entries if entry.kind == "compaction"
        ],
        approvals=describe_approvals(calls),
        phase=turn.phase,
        usage=turn.usage,
        error=turn.error,
    )
    return TurnPicture(turn=turn, snapshot=snapshot)


def call_event(call: StoredToolCall, *, reasoning: str = "") -> Step:
    """Return the event that shows where a tool call stands.

    reasoning: of the model that asked for it.
    """
    result = call.result[:OBSERVATION_CHARS] if call.result is not None else None
    return Step(
        type="iteration",
        status="done" if call.state in FINISHED_STATES else "start",
        iteration=call.iteration,
        tool_call_id=call.id,
        tool_name=call.name,
        tool_args=parse_arguments(call.arguments),
        observation=None if call.is_error else result,
        error=result if call.is_error else None,
        reasoning=reasoning or None,
        elapsed_s=call.elapsed_s,
    )


def approval_event(call: StoredToolCall) -> Approval | None:
    """Return the event that shows what was decided about a call; None if nobody has to."""
    if call.approval is None:
        return None
    waits = call.approval is ApprovalState.WAITING and call.expires_at is not None
    return Approval(
        tool_call_id=call.id,
        tool_name=call.name,
        args=parse_arguments(call.arguments),
        state=call.approval,
        reason=call.approval_reason,
        expires_at=call.expires_at.isoformat() if waits and call.expires_at else None,
    )


def settled_events(calls: Iterable[StoredToolCall]) -> list[Event]:
    """Return the events for calls whose state has changed outside of the turn's worker."""
    events: list[Event] = []
    for call in calls:
        approval = approval_event(call)
        if approval is not None:
            events.append(approval)
        if call.state in FINISHED_STATES:
            events.append(call_event(call))
    return events


def describe_calls(calls: Iterable[StoredToolCall]) -> list[dict[str, object]]:
    """Return tool calls as `step` events show them."""
    return [call_event(call).data() for call in calls]


def describe_approvals(calls: Iterable[StoredToolCall]) -> list[dict[str, object]]:
    """Return the calls that a person has to approve, as `approval` events show them."""
    events = (approval_event(call) for call in calls)
    return [event.data() for event in events if event is not None]


def parse_arguments(arguments: str) -> object:
    """Return a tool call's arguments as events carry them: as JSON, or as text.

    Text is what is no JSON, and the beginning of what is longer than ARGUMENTS_CHARS.
    """
    if len(arguments) > ARGUMENTS_CHARS:
        return arguments[:ARGUMENTS_CHARS]
    try:
        parsed: object = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments
    return parsed


def terminal_event(turn: TurnView) -> Event | None:
    """Return the event that ends the turn's stream; None while the turn is open."""
    if turn.status in OPEN_STATUSES:
        return None
    if turn.status is TurnStatus.COMPLETED:
        return Done(
            answer=turn.answer or "",
            iterations=turn.iterations or 0,
            usage=turn.usage or {},
            elapsed_s=turn.elapsed_s or 0.0,
            compacted=turn.compacted,
        )
    if turn.status is TurnStatus.FAILED:
        return Failed(error=turn.error or {}, usage=turn.usage)
    return Cancelled(by=turn.cancel_by, reason=turn.cancel_reason, usage=turn.usage)
