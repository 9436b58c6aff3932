"""Tool calls that wait for a person, or that run as tasks of their own.

Their turn is parked meanwhile: nobody holds it, and it may be claimed again once the last of them
is settled. Whoever settles one locks the turn first, so that exactly one of those who settle the
last ones sees that no other is left, and rings the turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, bindparam, or_, select, update

from shared.clock import now
from shared.database import AnyRow
from shared.ids import ConversationId, ToolCallId, TurnId
from shared.repositories import tool_calls, turns
from shared.repositories.leases import is_bell_due
from shared.repositories.tool_calls import CALL_COLUMNS, StoredToolCall, is_delegated, stored_call
from shared.tables import ToolCall, Turn
from shared.task_names import Task, ToolTask
from shared.turn_state import ACTIVE_STATUSES, ApprovalState, Fence, ToolCallState, TurnStatus

USER_SPOKE = "user sent a message"
EXPIRED = "Nobody approved the call in time: it was not run."
LOST = "The worker that ran the call was lost: whether it took effect is not known."


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Calls whose state has changed, and what to ring for after the commit."""

    turn_id: TurnId
    calls: tuple[StoredToolCall, ...]
    tasks: tuple[Task, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallClaim:
    """A call that this process runs. `attempt` is its fence."""

    call: StoredToolCall
    turn_id: TurnId
    conversation_id: ConversationId
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DueCall:
    """A delegated call that the sweep has to settle, as nobody else will."""

    id: ToolCallId
    turn_id: TurnId
    has_expired: bool


def park_turn(connection: Connection, fence: Fence, *, remaining_s: float) -> TurnStatus | None:
    """Let go of a turn that has delegated calls; return the status it has meanwhile.

    remaining_s: time until its deadline, which is put off while it waits for a person.
    Returns None, and keeps the lease, if it has none. The caller holds the turn's row lock.
    """
    states = [
        call.state
        for call in tool_calls.get_tool_calls(connection, fence.turn_id)
        if call.is_delegated
    ]
    if not states:
        return None
    waits = ToolCallState.WAITING_APPROVAL in states
    status = TurnStatus.WAITING if waits else TurnStatus.RUNNING
    deadline = {"deadline_at": None, "remaining_s": remaining_s} if waits else {}
    connection.execute(
        update(Turn)
        .where(Turn.id == fence.turn_id)
        .values(
            status=status,
            lease_owner=None,
            lease_until=None,
            rung_at=None,
            rings=0,
            **deadline,
        ),
    )
    return status


def decide_call(
    connection: Connection,
    turn_id: TurnId,
    tool_call_id: ToolCallId,
    *,
    is_approved: bool,
    reason: str | None,
) -> Settled | None:
    """Approve or refuse a call that waits for it. Returns None if it does not, or not any more."""
    if _lock_active_turn(connection, turn_id) is None:
        return None
    condition = ToolCall.id == tool_call_id
    if not is_approved:
        return _refuse(connection, turn_id, condition, ApprovalState.REFUSED, reason)
    approve = (
        update(ToolCall)
        .where(_waits(turn_id), condition)
        .values(
            state=ToolCallState.READY,
            approval=ApprovalState.APPROVED,
            approval_reason=reason,
            rung_at=now(),
            rings=1,
        )
        .returning(*CALL_COLUMNS)
    )
    row = connection.execute(approve).one_or_none()
    return None if row is None else _settled(connection, turn_id, [row])


def refuse_open_calls(connection: Connection, turn_id: TurnId, reason: str) -> Settled:
    """Refuse all calls of a turn that wait for approval. The caller holds the turn's row lock."""
    condition = ToolCall.turn_id == turn_id
    refused = _refuse(connection, turn_id, condition, ApprovalState.REFUSED, reason)
    return refused or Settled(turn_id=turn_id, calls=())


def claim_call(
    connection: Connection,
    task: ToolTask,
    *,
    lease_s: float,
    max_attempts: int,
) -> CallClaim | None:
    """Take a call for a tools worker, if it may be started now.

    One whose worker was lost is taken again only if it is repeatable, and max_attempts times at
    most. Returns None if there is nothing to claim, or the turn is about to end.
    """
    turn = _lock_active_turn(connection, task.turn_id)
    if turn is None or turn.cancel_requested_at is not None:
        return None
    claim = (
        update(ToolCall)
        .where(
            ToolCall.id == task.tool_call_id,
            ToolCall.turn_id == task.turn_id,
            ToolCall.queue.is_not(None),
            or_(ToolCall.state == ToolCallState.READY, _may_run_again(max_attempts)),
        )
        .values(
            state=ToolCallState.RUNNING,
            attempt=ToolCall.attempt + 1,
            lease_until=now(lease_s),
            rung_at=None,
            rings=0,
        )
        .returning(*CALL_COLUMNS, ToolCall.attempt)
    )
    row = connection.execute(claim).one_or_none()
    if row is None:
        return None
    return CallClaim(
        call=stored_call(row),
        turn_id=TurnId(turn.id),
        conversation_id=ConversationId(turn.conversation_id),
        attempt=row.attempt,
    )


def renew_call(connection: Connection, claim: CallClaim, *, lease_s: float) -> bool:
    """Renew the lease on a running call; False if it is lost or the turn has ended."""
    renew = (
        update(ToolCall)
        .where(*_held(claim))
        .values(lease_until=now(lease_s))
        .returning(ToolCall.id)
    )
    return connection.execute(renew).one_or_none() is not None


def finish_call(
    connection: Connection,
    claim: CallClaim,
    finished: StoredToolCall,
) -> Settled | None:
    """Write down the result of a call that this process ran. Returns None if it lost the call."""
    if _lock_active_turn(connection, claim.turn_id) is None:
        return None
    finish = (
        update(ToolCall)
        .where(*_held(claim))
        .values(
            state=finished.state,
            result=finished.result,
            is_error=finished.is_error,
            elapsed_s=finished.elapsed_s,
            finished_at=now(),
        )
        .returning(*CALL_COLUMNS)
    )
    row = connection.execute(finish).one_or_none()
    return None if row is None else _settled(connection, claim.turn_id, [row])


def find_due_calls(
    connection: Connection,
    *,
    limit: int,
    max_attempts: int,
    with_lapsed: bool,
) -> list[DueCall]:
    """Return calls that were not approved in time, or whose worker was lost for good.

    with_lapsed: whether lapsed leases count; not right after the database was away.
    """
    has_expired = and_(
        ToolCall.state == ToolCallState.WAITING_APPROVAL,
        ToolCall.expires_at < now(),
    )
    conditions = [has_expired]
    if with_lapsed:
        conditions.append(and_(_is_lapsed(), ~_is_worth_a_try(max_attempts)))
    query = (
        select(ToolCall.id, ToolCall.turn_id, has_expired.label("has_expired"))
        .where(is_delegated(), or_(*conditions))
        .limit(limit)
    )
    return [
        DueCall(
            id=ToolCallId(row.id),
            turn_id=TurnId(row.turn_id),
            has_expired=bool(row.has_expired),
        )
        for row in connection.execute(query)
    ]


def settle_due_call(connection: Connection, due: DueCall, *, max_attempts: int) -> Settled | None:
    """Settle a call that `find_due_calls` found, unless somebody else was first."""
    if _lock_active_turn(connection, due.turn_id) is None:
        return None
    if due.has_expired:
        condition = and_(ToolCall.id == due.id, ToolCall.expires_at < now())
        return _refuse(connection, due.turn_id, condition, ApprovalState.EXPIRED, None)
    lose = (
        update(ToolCall)
        .where(ToolCall.id == due.id, _is_lapsed(), ~_is_worth_a_try(max_attempts))
        .values(
            state=ToolCallState.UNKNOWN,
            result=LOST,
            is_error=True,
            finished_at=now(),
        )
        .returning(*CALL_COLUMNS)
    )
    row = connection.execute(lose).one_or_none()
    return None if row is None else _settled(connection, due.turn_id, [row])


def take_due_tasks(
    connection: Connection,
    *,
    limit: int,
    max_attempts: int,
    is_queue_empty: bool,
    with_lapsed: bool,
) -> list[ToolTask]:
    """Mark calls that a tools worker may claim and whose task is due as rung; return the tasks."""
    is_ready = ToolCall.state == ToolCallState.READY
    condition = or_(is_ready, _may_run_again(max_attempts)) if with_lapsed else is_ready
    due = (
        select(ToolCall.id)
        .join(Turn, Turn.id == ToolCall.turn_id)
        .where(
            is_delegated(),
            condition,
            Turn.status.in_(ACTIVE_STATUSES),
            Turn.cancel_requested_at.is_(None),
            is_bell_due(ToolCall.rung_at, ToolCall.rings, is_queue_empty=is_queue_empty),
        )
        .order_by(ToolCall.id)
        .limit(limit)
        .with_for_update(of=ToolCall, skip_locked=True)
    )
    ids = [ToolCallId(found) for found in connection.execute(due).scalars()]
    if not ids:
        return []
    connection.execute(
        update(ToolCall)
        .where(ToolCall.id.in_(ids))
        .values(rung_at=now(), rings=ToolCall.rings + 1),
    )
    return _tasks_of(connection, ids)


def task_of(call: StoredToolCall, turn_id: TurnId, conversation_id: ConversationId) -> ToolTask:
    """Return the task that runs a call. Its queue is known."""
    if call.timeout_s is None:
        raise ValueError(f"{call.id} runs in no task")
    return ToolTask(
        tool_call_id=call.id,
        turn_id=turn_id,
        conversation_id=conversation_id,
        tool_name=call.name,
        timeout_s=call.timeout_s,
    )


_LOCK_TURN = (
    select(Turn.id, Turn.conversation_id, Turn.cancel_requested_at)
    .where(Turn.id == bindparam("turn"), Turn.status.in_(ACTIVE_STATUSES))
    .with_for_update()
)
_TASKS = select(*CALL_COLUMNS, Turn.id.label("turn_id"), Turn.conversation_id).join(
    Turn,
    Turn.id == ToolCall.turn_id,
)


def _lock_active_turn(connection: Connection, turn_id: TurnId) -> AnyRow | None:
    return connection.execute(_LOCK_TURN, {"turn": turn_id}).one_or_none()


def _waits(turn_id: TurnId) -> ColumnElement[bool]:
    return and_(
        ToolCall.turn_id == turn_id,
        ToolCall.state == ToolCallState.WAITING_APPROVAL,
    )


def _held(claim: CallClaim) -> tuple[ColumnElement[bool], ...]:
    return (
        ToolCall.id == claim.call.id,
        ToolCall.attempt == claim.attempt,
        ToolCall.state == ToolCallState.RUNNING,
    )


def _is_lapsed() -> ColumnElement[bool]:
    return and_(ToolCall.state == ToolCallState.RUNNING, ToolCall.lease_until < now())


def _is_worth_a_try(max_attempts: int) -> ColumnElement[bool]:
    return and_(ToolCall.is_repeatable, ToolCall.attempt < max_attempts)


def _may_run_again(max_attempts: int) -> ColumnElement[bool]:
    return and_(_is_lapsed(), _is_worth_a_try(max_attempts))


def _refuse(
    connection: Connection,
    turn_id: TurnId,
    condition: ColumnElement[bool],
    approval: ApprovalState,
    reason: str | None,
) -> Settled | None:
    refuse = (
        update(ToolCall)
        .where(_waits(turn_id), condition)
        .values(
            state=ToolCallState.DONE,
            approval=approval,
            approval_reason=reason,
            result=EXPIRED if approval is ApprovalState.EXPIRED else _refusal(reason),
            is_error=True,
            finished_at=now(),
        )
        .returning(*CALL_COLUMNS)
    )
    rows = connection.execute(refuse).all()
    return _settled(connection, turn_id, rows) if rows else None


def _refusal(reason: str | None) -> str:
    """Return what the model is told."""
    return f"The call was refused: {reason}" if reason else "The call was refused by the user."


def _settled(connection: Connection, turn_id: TurnId, rows: Sequence[AnyRow]) -> Settled:
    calls = sorted((stored_call(row) for row in rows), key=lambda call: call.seq)
    # Approved just now: rows of running calls are not settled here.
    queued = [call.id for call in calls if call.is_delegated]
    bell = turns.wake_turn(connection, turn_id)
    tasks: list[Task] = [*_tasks_of(connection, queued), *([bell] if bell else [])]
    return Settled(turn_id=turn_id, calls=tuple(calls), tasks=tuple(tasks))


def _tasks_of(connection: Connection, ids: Sequence[ToolCallId]) -> list[ToolTask]:
    if not ids:
        return []
    rows = connection.execute(_TASKS.where(ToolCall.id.in_(ids)).order_by(ToolCall.id))
    return [
        task_of(stored_call(row), TurnId(row.turn_id), ConversationId(row.conversation_id))
        for row in rows
    ]
