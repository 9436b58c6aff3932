"""Accepting a turn: one transaction, after which the server owns it."""

from dataclasses import dataclass

from sqlalchemy import Connection

from shared.errors import ConversationBusyError, IdempotencyMismatchError, NotFoundError
from shared.repositories import conversations, turns
from shared.repositories.turns import NewTurn, TurnView
from shared.turn_state import IfBusy


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What became of a posted turn."""

    turn: TurnView
    # False if the request repeats an earlier one by its Idempotency-Key.
    is_new: bool
    # Open turns of the conversation that come first.
    queue_position: int


def admit_turn(
    connection: Connection,
    turn: NewTurn,
    *,
    starts_conversation: bool,
    if_busy: IfBusy,
) -> Admission:
    """Write the turn down, in its conversation's order.

    starts_conversation: whether turn.conversation_id is a new conversation's.
    Raises NotFoundError for an unknown conversation, ConversationBusyError with
    IfBusy.REJECT, IdempotencyMismatchError for a key that was used with another request.
    Raises IntegrityError if another request with the same key commits first: try again.
    """
    if turn.idempotency_key is not None:
        earlier = turns.get_turn_by_idempotency_key(connection, turn.idempotency_key)
        if earlier is not None:
            return _repeat(connection, earlier, turn)
    if starts_conversation:
        conversations.insert_conversation(connection, turn.conversation_id, turn_count=1)
        view = turns.insert_turn(connection, turn, number=1)
        return Admission(turn=view, is_new=True, queue_position=0)
    number = turns.take_turn_number(connection, turn.conversation_id)
    if number is None:
        raise NotFoundError(
            f"There is no conversation {turn.conversation_id}: leave conversation_id out to start"
            " a new one",
        )
    if if_busy is IfBusy.REJECT and turns.has_open_turn(connection, turn.conversation_id):
        raise ConversationBusyError(
            f"Conversation {turn.conversation_id} has an open turn: wait for its end, or post with"
            ' "if_busy": "queue"',
        )
    view = turns.insert_turn(connection, turn, number)
    return Admission(
        turn=view,
        is_new=True,
        queue_position=turns.count_turns_ahead(connection, view),
    )


def _repeat(connection: Connection, earlier: TurnView, turn: NewTurn) -> Admission:
    if earlier.idempotency_hash != turn.idempotency_hash:
        raise IdempotencyMismatchError(
            "The Idempotency-Key was used before with another request: use a new key",
        )
    return Admission(
        turn=earlier,
        is_new=False,
        queue_position=turns.count_turns_ahead(connection, earlier),
    )
