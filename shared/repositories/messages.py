"""Messages: the conversation's history, densely numbered."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, func, insert, select

from shared.attachment import Attachment
from shared.clock import now
from shared.database import AnyRow
from shared.ids import ConversationId, MessageId, TurnId, new_message_id
from shared.tables import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """One message of a conversation."""

    id: MessageId
    position: int
    # user or assistant
    role: str
    # input, injection, answer or note
    kind: str
    # The message's text.
    text: str
    # Images after the text.
    attachments: tuple[Attachment, ...]
    turn_id: TurnId
    created_at: datetime


_COLUMNS = (
    Message.id,
    Message.position,
    Message.role,
    Message.kind,
    Message.content.label("text"),
    Message.attachments,
    Message.turn_id,
    Message.created_at,
)


_INSERT = insert(Message).values(created_at=now())
_APPEND = _INSERT.values(
    position=select(func.coalesce(func.max(Message.position), 0) + 1)
    .where(Message.conversation_id == bindparam("conversation"))
    .scalar_subquery(),
)
_HISTORY = (
    select(*_COLUMNS)
    .where(
        Message.conversation_id == bindparam("conversation"),
        Message.position > bindparam("after_position"),
        Message.position < bindparam("before_position"),
    )
    .order_by(Message.position)
)


def insert_message(
    connection: Connection,
    *,
    turn_id: TurnId,
    conversation_id: ConversationId,
    position: int,
    role: str,
    kind: str,
    content: str,
    attachments: tuple[Attachment, ...] = (),
) -> None:
    """Write a message at a position that is known to be the next."""
    connection.execute(
        _INSERT,
        {
            "id": new_message_id(),
            "conversation_id": conversation_id,
            "position": position,
            "role": role,
            "kind": kind,
            "content": content,
            "attachments": attachments,
            "turn_id": turn_id,
        },
    )


def append_message(
    connection: Connection,
    *,
    turn_id: TurnId,
    conversation_id: ConversationId,
    role: str,
    kind: str,
    content: str,
) -> None:
    """Add a message at the end of the conversation.

    Only the active turn of a conversation adds messages, and it holds its own row's lock, so
    the next position is free; the unique constraint holds it to that.
    """
    connection.execute(
        _APPEND,
        {
            "id": new_message_id(),
            "conversation": conversation_id,
            "conversation_id": conversation_id,
            "role": role,
            "kind": kind,
            "content": content,
            "turn_id": turn_id,
        },
    )


def get_history(
    connection: Connection,
    conversation_id: ConversationId,
    *,
    before_position: int,
    after_position: int = 0,
) -> list[StoredMessage]:
    """Return the messages between two positions, in order."""
    given = {
        "conversation": conversation_id,
        "after_position": after_position,
        "before_position": before_position,
    }
    return [_stored(row) for row in connection.execute(_HISTORY, given)]


def list_messages(
    connection: Connection,
    conversation_id: ConversationId,
    *,
    after_position: int,
    limit: int,
) -> list[StoredMessage]:
    """Return messages after a position, in order."""
    query = (
        select(*_COLUMNS)
        .where(Message.conversation_id == conversation_id, Message.position > after_position)
        .order_by(Message.position)
        .limit(limit)
    )
    return [_stored(row) for row in connection.execute(query)]


def get_first_position(connection: Connection, turn_id: TurnId) -> int | None:
    """Return the position of a turn's first message; None if it has none."""
    query = select(func.min(Message.position)).where(Message.turn_id == turn_id)
    return connection.execute(query).scalar_one()


def search_messages(
    connection: Connection,
    conversation_id: ConversationId,
    terms: Collection[str],
    *,
    after_position: int,
    before_position: int,
    limit: int,
) -> list[StoredMessage]:
    """Return the newest messages between two positions that hold every term, newest first.

    terms: in lower case; letters match in any case.
    """
    text = func.lower(Message.content)
    query = (
        select(*_COLUMNS)
        .where(
            Message.conversation_id == conversation_id,
            Message.position > after_position,
            Message.position < before_position,
            *(text.contains(term, autoescape=True) for term in terms),
        )
        .order_by(Message.position.desc())
        .limit(limit)
    )
    return [_stored(row) for row in connection.execute(query)]


def _stored(row: AnyRow) -> StoredMessage:
    return StoredMessage(**row._asdict())
