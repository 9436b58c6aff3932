"""Tool calls of a turn, written behind its fence.

A call is delegated while its turn's worker has nothing to do for it: a person has to approve it
first, or a tools worker runs it. Those are claimed, decided and finished in `delegated_calls`.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    and_,
    bindparam,
    case,
    insert,
    or_,
    select,
    update,
)

from shared.clock import now
from shared.database import AnyRow
from shared.ids import ToolCallId, TurnId
from shared.repositories.journal import TURN_LOOP
from shared.tables import ToolCall
from shared.turn_state import ApprovalState, Fence, ToolCallState

NOT_STARTED = "The call was not run: the turn ended first."
NOT_ENDED = "The turn ended while the call was running: whether it took effect is not known."


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
    # Celery queue of the task that runs it; None: the turn's worker runs it.
    queue: str | None = None
    is_repeatable: bool = False
    # Time it may take, if a task of its own runs it.
    timeout_s: float | None = None
    # None: nobody has to approve it.
    approval: ApprovalState | None = None
    approval_reason: str | None = None
    # Until when it may be approved.
    expires_at: datetime | None = None

    @property
    def is_delegated(self) -> bool:
        """Whether it waits for a person or for a tools worker."""
        if self.state is ToolCallState.WAITING_APPROVAL:
            return True
        return self.queue is not None and self.state in _UNFINISHED

    def finished(
        self,
        *,
        state: ToolCallState,
        result: str,
        is_error: bool,
        elapsed_s: float = 0.0,
    ) -> "StoredToolCall":
        """Return the call with its result."""
        return replace(
            self,
            state=state,
            result=result,
            is_error=is_error,
            elapsed_s=round(elapsed_s, 3),
        )


_UNFINISHED = (ToolCallState.READY, ToolCallState.RUNNING)
_OPEN = (ToolCallState.WAITING_APPROVAL, *_UNFINISHED)

# What `stored_call` reads.
CALL_COLUMNS = (
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
    ToolCall.queue,
    ToolCall.is_repeatable,
    ToolCall.timeout_s,
    ToolCall.approval,
    ToolCall.approval_reason,
    ToolCall.expires_at,
)


def is_delegated() -> ColumnElement[bool]:
    """Say that the call waits for a person or for a tools worker."""
    return or_(
        ToolCall.state == ToolCallState.WAITING_APPROVAL,
        and_(ToolCall.queue.is_not(None), ToolCall.state.in_(_UNFINISHED)),
    )


_INSERT = insert(ToolCall).values(
    loop=TURN_LOOP,
    attempt=0,
    is_error=False,
    created_at=now(),
    # Of a task that is sent as soon as this is committed.
    rung_at=now(),
    rings=1,
)
_INSERT_WAITING = _INSERT.values(
    expires_at=now(bindparam("approval_timeout_s", type_=Float)),
).returning(ToolCall.expires_at)
_CALLS = (
    select(*CALL_COLUMNS)
    .where(ToolCall.turn_id == bindparam("turn"))
    .order_by(ToolCall.iteration, ToolCall.seq)
)


def insert_tool_calls(
    connection: Connection,
    fence: Fence,
    calls: list[StoredToolCall],
    *,
    approval_timeout_s: float,
) -> list[StoredToolCall]:
    """Write down the tool calls of a response, with the state each is given; return them.

    approval_timeout_s: time to approve those that wait for it.
    """
    written: list[StoredToolCall] = []
    for call in calls:
        given = {
            "id": call.id,
            "turn_id": fence.turn_id,
            "iteration": call.iteration,
            "seq": call.seq,
            "call_id": call.call_id,
            "name": call.name,
            "arguments": call.arguments,
            "state": call.state,
            "queue": call.queue,
            "is_repeatable": call.is_repeatable,
            "timeout_s": call.timeout_s,
            "approval": call.approval,
        }
        if call.approval is None:
            connection.execute(_INSERT, given)
            written.append(call)
        else:
            given["approval_timeout_s"] = approval_timeout_s
            expires_at = connection.execute(_INSERT_WAITING, given).scalar_one()
            written.append(replace(call, expires_at=expires_at))
    return written


def start_tool_calls(connection: Connection, fence: Fence, ids: list[ToolCallId]) -> None:
    """Mark tool calls as started by the turn's worker."""
    connection.execute(
        update(ToolCall)
        .where(ToolCall.id.in_(ids), ToolCall.turn_id == fence.turn_id)
        .values(state=ToolCallState.RUNNING, attempt=ToolCall.attempt + 1),
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


def close_tool_calls(connection: Connection, turn_id: TurnId) -> tuple[StoredToolCall, ...]:
    """End the calls that an ended turn leaves open; return them in order.

    What was not started will not start; of what was, nothing is known. A tools worker that runs
    one stops when it cannot renew its lease. The caller holds the turn's row lock.
    """
    was_running = ToolCall.state == ToolCallState.RUNNING
    is_waiting = ToolCall.state == ToolCallState.WAITING_APPROVAL
    close = (
        update(ToolCall)
        .where(ToolCall.turn_id == turn_id, ToolCall.state.in_(_OPEN))
        .values(
            state=case((was_running, ToolCallState.UNKNOWN), else_=ToolCallState.DONE),
            result=case((was_running, NOT_ENDED), else_=NOT_STARTED),
            approval=case((is_waiting, ApprovalState.EXPIRED), else_=ToolCall.approval),
            is_error=True,
            finished_at=now(),
        )
        .returning(*CALL_COLUMNS)
    )
    closed = [stored_call(row) for row in connection.execute(close)]
    return tuple(sorted(closed, key=lambda call: (call.iteration, call.seq)))


def get_tool_calls(connection: Connection, turn_id: TurnId) -> list[StoredToolCall]:
    """Return the tool calls of a turn, in the order they were asked for."""
    return [stored_call(row) for row in connection.execute(_CALLS, {"turn": turn_id})]


def stored_call(row: AnyRow) -> StoredToolCall:
    """Return a row that holds CALL_COLUMNS, perhaps among others, as a value."""
    given = {column.key: getattr(row, column.key) for column in CALL_COLUMNS}
    given["state"] = ToolCallState(given["state"])
    given["approval"] = ApprovalState(given["approval"]) if given["approval"] else None
    return StoredToolCall(**given)
