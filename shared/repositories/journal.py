"""The journal and the tool calls of a turn: written only behind its fence."""

from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, insert, select, update

from shared.clock import now
from shared.database import AnyRow
from shared.ids import ToolCallId, TurnId
from shared.tables import JournalEntry, ToolCall
from shared.turn_state import Fence, ToolCallState

TURN_LOOP = "turn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of the journal."""

    seq: int
    # response, injections or compaction
    kind: str
    data: dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToolCall:
    """One tool call of a turn."""

    id: ToolCallId
    iteration: int
    seq: int
    call_id: str
    name: str
    arguments: str
    state: ToolCallState
    result: str | None
    is_error: bool
    elapsed_s: float | None


_CALL = (
    ToolCall.id,
    ToolCall.iteration,
    ToolCall.seq,
    ToolCall.call_id,
    ToolCall.name,
    ToolCall.arguments,
    ToolCall.state,
    ToolCall.result,
    ToolCall.is_error,
    ToolCall.elapsed_s,
)


_INSERT_ENTRY = insert(JournalEntry).values(loop=TURN_LOOP, created_at=now())
_ENTRIES = (
    select(JournalEntry.seq, JournalEntry.kind, JournalEntry.data)
    .where(JournalEntry.turn_id == bindparam("turn"), JournalEntry.loop == TURN_LOOP)
    .order_by(JournalEntry.seq)
)
_INSERT_CALL = insert(ToolCall).values(loop=TURN_LOOP, is_error=False, created_at=now())
_CALLS = (
    select(*_CALL)
    .where(ToolCall.turn_id == bindparam("turn"))
    .order_by(ToolCall.iteration, ToolCall.seq)
)


def append_entries(connection: Connection, fence: Fence, entries: list[Entry]) -> None:
    """Append entries in order. The caller holds the turn's row lock behind its fence."""
    for entry in entries:
        connection.execute(
            _INSERT_ENTRY,
            {
                "turn_id": fence.turn_id,
                "seq": entry.seq,
                "attempt": fence.attempt,
                "kind": entry.kind,
                "data": entry.data,
            },
        )


def compaction_event(entry: Entry) -> dict[str, object]:
    """Return the data of the event that told of a journaled compaction."""
    event = entry.data["event"]
    if not isinstance(event, dict):
        raise TypeError("a compaction's entry holds its event")
    return event


def get_entries(connection: Connection, turn_id: TurnId) -> list[Entry]:
    """Return the journal of a turn's own loop, in order."""
    rows = connection.execute(_ENTRIES, {"turn": turn_id})
    return [Entry(seq=row.seq, kind=row.kind, data=row.data) for row in rows]


def insert_tool_calls(connection: Connection, fence: Fence, calls: list[StoredToolCall]) -> None:
    """Write down the tool calls of a response, with the state each is given."""
    for call in calls:
        connection.execute(
            _INSERT_CALL,
            {
                "id": call.id,
                "turn_id": fence.turn_id,
                "iteration": call.iteration,
                "seq": call.seq,
                "call_id": call.call_id,
                "name": call.name,
                "arguments": call.arguments,
                "state": call.state,
                "attempt": fence.attempt,
            },
        )


def start_tool_calls(connection: Connection, fence: Fence, ids: list[ToolCallId]) -> None:
    """Mark tool calls as started by this attempt."""
    connection.execute(
        update(ToolCall)
        .where(ToolCall.id.in_(ids), ToolCall.turn_id == fence.turn_id)
        .values(state=ToolCallState.RUNNING, attempt=fence.attempt),
    )


def finish_tool_call(
    connection: Connection,
    tool_call_id: ToolCallId,
    *,
    state: ToolCallState,
    result: str,
    is_error: bool,
    elapsed_s: float,
) -> None:
    """Write down a tool call's result, once."""
    connection.execute(
        update(ToolCall)
        .where(ToolCall.id == tool_call_id, ToolCall.state != ToolCallState.DONE)
        .values(
            state=state,
            result=result,
            is_error=is_error,
            elapsed_s=elapsed_s,
            finished_at=now(),
        ),
    )


def get_tool_calls(connection: Connection, turn_id: TurnId) -> list[StoredToolCall]:
    """Return the tool calls of a turn, in the order they were asked for."""
    query = (
        select(*_CALL).where(ToolCall.turn_id == turn_id).order_by(ToolCall.iteration, ToolCall.seq)
    )
    return [_call(row) for row in connection.execute(query)]


def _call(row: AnyRow) -> StoredToolCall:
    fields = row._asdict()
    fields["state"] = ToolCallState(fields["state"])
    return StoredToolCall(**fields)
