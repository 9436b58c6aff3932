"""How turns end: one transaction each, with everything the end entails.

Whoever ends a turn returns its unread injections, leaves the conversation with alternating
roles, and names the conversation's next turn for its doorbell.
"""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, select, update
from sqlalchemy.orm import aliased

from shared.clock import now
from shared.database import AnyRow
from shared.ids import ConversationId, TurnId
from shared.repositories import injections, messages
from shared.repositories.turns import is_unheld
from shared.tables import Turn
from shared.turn_state import (
    ACTIVE_STATUSES,
    OPEN_STATUSES,
    EndedTurn,
    Fence,
    TurnStatus,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a completed turn leaves."""

    answer: str
    usage: dict[str, object]
    iterations: int
    compacted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a turn failed, and what it had by then."""

    type: str
    message: str
    partial_answer: str = ""
    usage: dict[str, object] | None = None

    @property
    def error(self) -> dict[str, object]:
        """The turn's error as the API shows it."""
        return {"type": self.type, "message": self.message}


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequest:
    """Who wants a turn cancelled, and why."""

    by: str
    reason: str | None


def complete_turn(
    connection: Connection,
    fence: Fence,
    completion: Completion,
) -> EndedTurn | None:
    """End the turn with its answer.

    Returns None, and writes nothing, if the lease is lost, an injected message waits or a
    cancel was requested: all are conditions of the one UPDATE, so none can slip in between.
    """
    row = _end(
        connection,
        and_(
            _is_held(fence),
            Turn.pending_injections == 0,
            Turn.cancel_requested_at.is_(None),
        ),
        status=TurnStatus.COMPLETED,
        answer=completion.answer,
        usage=completion.usage,
        iterations=completion.iterations,
        compacted=completion.compacted,
    )
    if row is None:
        return None
    messages.append_message(
        connection,
        turn_id=fence.turn_id,
        conversation_id=ConversationId(row.conversation_id),
        role="assistant",
        kind="answer",
        content=completion.answer,
    )
    return _ended(connection, row)


def fail_turn(connection: Connection, fence: Fence, failure: Failure) -> EndedTurn | None:
    """End the turn as failed. Returns None if the lease is lost."""
    return _fail(connection, _is_held(fence), failure)


def fail_unheld_turn(
    connection: Connection,
    turn_id: TurnId,
    failure: Failure,
) -> EndedTurn | None:
    """End a turn that nobody holds as failed. Returns None if it is held or has ended."""
    return _fail(connection, _is_open_and_unheld(turn_id), failure)


def cancel_turn(
    connection: Connection,
    fence: Fence,
    *,
    partial_answer: str,
    usage: dict[str, object],
) -> EndedTurn | None:
    """End the turn as cancelled. Returns None if the lease is lost."""
    return _cancel(connection, _is_held(fence), partial_answer, usage=usage)


def cancel_unheld_turn(connection: Connection, turn_id: TurnId) -> EndedTurn | None:
    """End a turn that nobody holds and whose cancel was requested. Returns None otherwise."""
    is_asked = Turn.cancel_requested_at.is_not(None)
    return _cancel(connection, and_(_is_open_and_unheld(turn_id), is_asked), "")


def request_cancel(
    connection: Connection,
    turn_id: TurnId,
    request: CancelRequest,
) -> EndedTurn | None:
    """Note that the turn is to be cancelled, and end it at once if nobody holds it.

    The first request stands. Returns None if a worker holds the turn (it will end it), or if
    the turn has ended already.
    """
    note = (
        update(Turn)
        .where(
            Turn.id == turn_id,
            Turn.status.in_(OPEN_STATUSES),
            Turn.cancel_requested_at.is_(None),
        )
        .values(cancel_requested_at=now(), cancel_by=request.by, cancel_reason=request.reason)
    )
    connection.execute(note)
    return cancel_unheld_turn(connection, turn_id)


def _is_held(fence: Fence) -> ColumnElement[bool]:
    return and_(
        Turn.id == fence.turn_id,
        Turn.attempt == fence.attempt,
        Turn.status == TurnStatus.RUNNING,
        Turn.lease_owner.is_not(None),
    )


def _is_open_and_unheld(turn_id: TurnId) -> ColumnElement[bool]:
    return and_(Turn.id == turn_id, Turn.status.in_(OPEN_STATUSES), is_unheld())


def _fail(
    connection: Connection,
    condition: ColumnElement[bool],
    failure: Failure,
) -> EndedTurn | None:
    row = _end(
        connection,
        condition,
        status=TurnStatus.FAILED,
        error=failure.error,
        usage=failure.usage,
    )
    return _leave_note(connection, row, "[The turn failed.]", failure.partial_answer)


def _cancel(
    connection: Connection,
    condition: ColumnElement[bool],
    partial_answer: str,
    *,
    usage: dict[str, object] | None = None,
) -> EndedTurn | None:
    row = _end(connection, condition, status=TurnStatus.CANCELLED, usage=usage)
    return _leave_note(connection, row, "[The turn was cancelled.]", partial_answer)


def _end(
    connection: Connection,
    condition: ColumnElement[bool],
    **values: object,
) -> AnyRow | None:
    end = (
        update(Turn)
        .where(condition)
        .values(
            finished_at=now(),
            phase=None,
            lease_owner=None,
            lease_until=None,
            rung_at=None,
            rings=0,
            pending_injections=0,
            **values,
        )
        .returning(Turn.id, Turn.conversation_id, Turn.status, Turn.first_position)
    )
    return connection.execute(end).one_or_none()


def _leave_note(
    connection: Connection,
    row: AnyRow | None,
    note: str,
    partial_answer: str,
) -> EndedTurn | None:
    if row is None:
        return None
    if row.first_position is not None:
        messages.append_message(
            connection,
            turn_id=TurnId(row.id),
            conversation_id=ConversationId(row.conversation_id),
            role="assistant",
            kind="note",
            content=f"{partial_answer}\n\n{note}" if partial_answer else note,
        )
    return _ended(connection, row)


def _ended(connection: Connection, row: AnyRow) -> EndedTurn:
    turn_id = TurnId(row.id)
    status = TurnStatus(row.status)
    return EndedTurn(
        turn_id=turn_id,
        conversation_id=ConversationId(row.conversation_id),
        status=status,
        returned=()
        if status is TurnStatus.COMPLETED  # a condition of its end was that nothing waits
        else injections.return_injections(connection, turn_id),
        next_turn_id=_mark_next_rung(connection, ConversationId(row.conversation_id)),
    )


def _mark_next_rung(connection: Connection, conversation_id: ConversationId) -> TurnId | None:
    other = aliased(Turn)
    is_busy = (
        select(other.id)
        .where(other.conversation_id == conversation_id, other.status.in_(ACTIVE_STATUSES))
        .exists()
    )
    head = (
        select(Turn.id)
        .where(Turn.conversation_id == conversation_id, Turn.status == TurnStatus.QUEUED, ~is_busy)
        .order_by(Turn.number)
        .limit(1)
    )
    next_id = connection.execute(head).scalar_one_or_none()
    if next_id is None:
        return None
    rung = update(Turn).where(Turn.id == next_id, Turn.status == TurnStatus.QUEUED)
    connection.execute(rung.values(rung_at=now(), rings=1))
    return TurnId(next_id)
