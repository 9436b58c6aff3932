"""What the database knows of a turn, as events: its snapshot and its terminal event."""

from dataclasses import dataclass

import orjson
from sqlalchemy import Connection

from shared.events import (
    ARGUMENTS_CHARS,
    OBSERVATION_CHARS,
    Cancelled,
    Done,
    Event,
    Failed,
    Snapshot,
)
from shared.ids import TurnId
from shared.repositories import injections, journal, turns
from shared.repositories.journal import StoredToolCall
from shared.repositories.turns import TurnView
from shared.turn_state import OPEN_STATUSES, ToolCallState, TurnStatus


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
    calls = journal.get_tool_calls(connection, turn_id)
    stored = injections.list_injections(connection, turn_id)
    entries = journal.get_entries(connection, turn_id)
    snapshot = Snapshot(
        status=turn.status,
        mode=turn.mode,
        attempt=turn.attempt,
        answer_so_far=turn.answer or "",
        steps=[describe_call(call) for call in calls],
        injections=[
            {"injection_id": item.id, "state": item.state, "content": item.content}
            for item in stored
        ],
        compactions=[
            journal.compaction_event(entry) for entry in entries if entry.kind == "compaction"
        ],
        phase=turn.phase,
        usage=turn.usage,
        error=turn.error,
    )
    return TurnPicture(turn=turn, snapshot=snapshot)


def describe_call(call: StoredToolCall) -> dict[str, object]:
    """Return a tool call as `step` events of type iteration show it."""
    is_over = call.state in (ToolCallState.DONE, ToolCallState.UNKNOWN)
    shown: dict[str, object] = {
        "type": "iteration",
        "status": "done" if is_over else "start",
        "iteration": call.iteration,
        "tool_call_id": call.id,
        "tool_name": call.name,
        "tool_args": parse_arguments(call.arguments),
    }
    if call.result is not None:
        shown["error" if call.is_error else "observation"] = call.result[:OBSERVATION_CHARS]
    if call.elapsed_s is not None:
        shown["elapsed_s"] = call.elapsed_s
    return shown


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
