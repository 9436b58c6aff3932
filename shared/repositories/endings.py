"""How turns end: one transaction each, with everything the end entails.

Each locks the conversation before the turn: two ends of one conversation come one after the
other, so that the second one sees which turn is next, and neither waits for the other's rows.

Whoever ends a turn returns its unread injections, leaves the conversation with alternating
roles, and names the conversation's next turn for its doorbell.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, exists, func, select, update
from sqlalchemy.orm import InstrumentedAttribute, aliased

from shared.clock import now
from shared.database import AnyUpdate
from shared.ids import ConversationId, TurnId
from shared.repositories import injections, messages, tool_calls
from shared.repositories.injections import ReturnedInjection
from shared.repositories.tool_calls import StoredToolCall
from shared.repositories.turns import (
    VIEW_COLUMNS,
    TurnView,
    fence_parameters,
    is_held,
    is_unheld,
    view_turn,
)
from shared.tables import Conversation, Turn
from shared.turn_state import (
    ACTIVE_STATUSES,
    OPEN_STATUSES,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTurn:
    """A turn that has just ended, and what its end set free."""

    turn: TurnView
    # Injections that went back to their sender, in order.
    returned: tuple[ReturnedInjection, ...] = ()
    # Tool calls that were open until then, in order.
    closed_calls: tuple[StoredToolCall, ...] = ()
    # The conversation's next turn; its doorbell is to be rung after the commit.
    next_turn_id: TurnId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequest:
    """Who wants a turn cancelled, and why."""

    by: str
    reason: str | None


def _end(
    condition: ColumnElement[bool],
    status: TurnStatus,
    *columns: InstrumentedAttribute[Any],
) -> AnyUpdate:
    """Return the statement that ends a turn; its columns are given as `{column}_`."""
    return (
        update(Turn)
        .where(condition)
        .values(
            {
                Turn.status: status,
                Turn.finished_at: now(),
                Turn.phase: None,
                Turn.lease_owner: None,
                Turn.lease_until: None,
                Turn.rung_at: None,
                Turn.rings: 0,
                Turn.pending_injections: 0,
            }
            | {column: bindparam(f"{column.key}_", type_=column.type) for column in columns},
        )
        .returning(*VIEW_COLUMNS)
    )


def _next_statement() -> AnyUpdate:
    """Mark the conversation's next queued turn as rung, unless one is active."""
    other = aliased(Turn)
    is_busy = exists().where(
        other.conversation_id == Turn.conversation_id,
        other.status.in_(ACTIVE_STATUSES),
    )
    head = aliased(Turn)
    first_number = (
        select(func.min(head.number))
        .where(
            head.conversation_id == bindparam("conversation"),
            head.status == TurnStatus.QUEUED,
        )
        .scalar_subquery()
    )
    return (
        update(Turn)
        .where(
            Turn.conversation_id == bindparam("conversation"),
            Turn.number == first_number,
            Turn.status == TurnStatus.QUEUED,
            ~is_busy,
        )
        .values(rung_at=now(), rings=1)
        .returning(Turn.id)
    )


_IS_OPEN_AND_UNHELD = and_(
    Turn.id == bindparam("unheld_id"),
    Turn.status.in_(OPEN_STATUSES),
    is_unheld(),
)
_IS_ASKED = Turn.cancel_requested_at.is_not(None)
_NOTHING_WAITS = and_(Turn.pending_injections == 0, ~_IS_ASKED)

_COMPLETE = _end(
    and_(is_held(), _NOTHING_WAITS),
    TurnStatus.COMPLETED,
    Turn.answer,
    Turn.usage,
    Turn.iterations,
    Turn.compacted,
)
_FAIL_HELD = _end(is_held(), TurnStatus.FAILED, Turn.error, Turn.usage)
_FAIL_UNHELD = _end(_IS_OPEN_AND_UNHELD, TurnStatus.FAILED, Turn.error, Turn.usage)
_CANCEL_HELD = _end(is_held(), TurnStatus.CANCELLED, Turn.usage)
_CANCEL_UNHELD = _end(and_(_IS_OPEN_AND_UNHELD, _IS_ASKED), TurnStatus.CANCELLED, Turn.usage)
_REQUEST_CANCEL = (
    update(Turn)
    .where(Turn.id == bindparam("unheld_id"), Turn.status.in_(OPEN_STATUSES), ~_IS_ASKED)
    .values(
        cancel_requested_at=now(),
        cancel_by=bindparam("by_"),
        cancel_reason=bindparam("reason_"),
    )
)
_NEXT = _next_statement()
_LOCK_CONVERSATION = (
    select(Conversation.id)
    .where(
        Conversation.id
        == select(Turn.conversation_id).where(Turn.id == bindparam("turn")).scalar_subquery(),
    )
    # Not against those who only refer to it, as every new message does.
    .with_for_update(key_share=True)
)

NOTES = {
    TurnStatus.FAILED: "[The turn failed.]",
    TurnStatus.CANCELLED: "[The turn was cancelled.]",
}


def complete_turn(
    connection: Connection,
    fence: Fence,
    completion: Completion,
) -> EndedTurn | None:
    """End the turn with its answer.

    Returns None, and writes nothing, if the lease is lost, an injected message waits or a
    cancel was requested: all are conditions of the one UPDATE, so none can slip in between.
    """
    given = fence_parameters(fence) | {
        "answer_": completion.answer,
        "usage_": completion.usage,
        "iterations_": completion.iterations,
        "compacted_": completion.compacted,
    }
    _lock_conversation(connection, fence.turn_id)
    row = connection.execute(_COMPLETE, given).one_or_none()
    if row is None:
        return None
    turn = view_turn(row)
    messages.append_message(
        connection,
        turn_id=turn.id,
        conversation_id=turn.conversation_id,
        role="assistant",
        kind="answer",
        content=completion.answer,
    )
    return _ended(connection, turn)


def fail_turn(connection: Connection, fence: Fence, failure: Failure) -> EndedTurn | None:
    """End the turn as failed. Returns None if the lease is lost."""
    _lock_conversation(connection, fence.turn_id)
    given = fence_parameters(fence) | _describe(failure)
    return _end_with_note(connection, _FAIL_HELD, given, failure.partial_answer)


def fail_unheld_turn(
    connection: Connection,
    turn_id: TurnId,
    failure: Failure,
) -> EndedTurn | None:
    """End a turn that nobody holds as failed. Returns None if it is held or has ended."""
    _lock_conversation(connection, turn_id)
    given = {"unheld_id": turn_id} | _describe(failure)
    return _end_with_note(connection, _FAIL_UNHELD, given, failure.partial_answer)


def cancel_turn(
    connection: Connection,
    fence: Fence,
    *,
    partial_answer: str,
    usage: dict[str, object],
) -> EndedTurn | None:
    """End the turn as cancelled. Returns None if the lease is lost."""
    _lock_conversation(connection, fence.turn_id)
    given = fence_parameters(fence) | {"usage_": usage}
    return _end_with_note(connection, _CANCEL_HELD, given, partial_answer)


def cancel_unheld_turn(connection: Connection, turn_id: TurnId) -> EndedTurn | None:
    """End a turn that nobody holds and whose cancel was requested. Returns None otherwise."""
    _lock_conversation(connection, turn_id)
    given: dict[str, object] = {"unheld_id": turn_id, "usage_": None}
    return _end_with_note(connection, _CANCEL_UNHELD, given)


def request_cancel(
    connection: Connection,
    turn_id: TurnId,
    request: CancelRequest,
) -> EndedTurn | None:
    """Note that the turn is to be cancelled, and end it at once if nobody holds it.

    The first request stands. Returns None if a worker holds the turn (it will end it), or if
    the turn has ended already.
    """
    _lock_conversation(connection, turn_id)
    given = {"unheld_id": turn_id, "by_": request.by, "reason_": request.reason}
    connection.execute(_REQUEST_CANCEL, given)
    return cancel_unheld_turn(connection, turn_id)


def _lock_conversation(connection: Connection, turn_id: TurnId) -> None:
    connection.execute(_LOCK_CONVERSATION, {"turn": turn_id})


def _end_with_note(
    connection: Connection,
    end: AnyUpdate,
    given: dict[str, object],
    partial_answer: str = "",
) -> EndedTurn | None:
    row = connection.execute(end, given).one_or_none()
    if row is None:
        return None
    turn = view_turn(row)
    if turn.first_position is not None:  # a turn that was never claimed leaves no message
        note = NOTES[turn.status]
        messages.append_message(
            connection,
            turn_id=turn.id,
            conversation_id=turn.conversation_id,
            role="assistant",
            kind="note",
            content=f"{partial_answer}\n\n{note}" if partial_answer else note,
        )
    return _ended(connection, turn)


def _describe(failure: Failure) -> dict[str, object]:
    return {
        "error_": {"type": failure.type, "message": failure.message},
        "usage_": failure.usage,
    }


def _ended(connection: Connection, turn: TurnView) -> EndedTurn:
    next_turn_id = _mark_next_rung(connection, turn.conversation_id)
    if turn.status is TurnStatus.COMPLETED:
        # A condition of its end was that nothing waits.
        return EndedTurn(turn=turn, next_turn_id=next_turn_id)
    return EndedTurn(
        turn=turn,
        returned=injections.return_injections(connection, turn.id),
        closed_calls=tool_calls.close_tool_calls(connection, turn.id),
        next_turn_id=next_turn_id,
    )


def _mark_next_rung(connection: Connection, conversation_id: ConversationId) -> TurnId | None:
    given = {"conversation": conversation_id}
    next_id = connection.execute(_NEXT, given).scalar_one_or_none()
    return None if next_id is None else TurnId(next_id)
