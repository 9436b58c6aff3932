"""Conversations."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, and_, delete, insert, or_, select, update

from shared.clock import now
from shared.database import AnyRow
from shared.ids import ConversationId
from shared.tables import Conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationView:
    """A conversation as the API shows it."""

    id: ConversationId
    turn_count: int
    metadata: dict[str, object]
    created_at: datetime
    updated_at: datetime


_COLUMNS = (
    Conversation.id,
    Conversation.turn_count,
    Conversation.metadata_.label("metadata"),
    Conversation.created_at,
    Conversation.updated_at,
)


_INSERT = insert(Conversation).values(metadata_={}, created_at=now(), updated_at=now())


def insert_conversation(
    connection: Connection,
    conversation_id: ConversationId,
    *,
    turn_count: int,
) -> None:
    """Write down a new conversation, with the turns that are posted along with it."""
    connection.execute(_INSERT, {"id": conversation_id, "turn_count": turn_count})


def get_conversation(
    connection: Connection,
    conversation_id: ConversationId,
) -> ConversationView | None:
    """Return the conversation, or None."""
    query = select(*_COLUMNS).where(Conversation.id == conversation_id)
    row = connection.execute(query).one_or_none()
    return _view(row) if row else None


def list_conversations(
    connection: Connection,
    *,
    after: ConversationView | None,
    limit: int,
) -> list[ConversationView]:
    """Return conversations, most recently used first, that follow `after` in that order."""
    query = select(*_COLUMNS).order_by(Conversation.updated_at.desc(), Conversation.id.desc())
    if after is not None:
        query = query.where(
            or_(
                Conversation.updated_at < after.updated_at,
                and_(Conversation.updated_at == after.updated_at, Conversation.id < after.id),
            ),
        )
    return [_view(row) for row in connection.execute(query.limit(limit))]


def delete_conversation(connection: Connection, conversation_id: ConversationId) -> bool:
    """Delete the conversation and all that belongs to it; tell whether there was one."""
    gone = delete(Conversation).where(Conversation.id == conversation_id).returning(Conversation.id)
    return connection.execute(gone).one_or_none() is not None


def get_tools(connection: Connection, conversation_id: ConversationId) -> tuple[str, ...]:
    """Return the names of the tools that were picked for a conversation, as they came."""
    query = select(Conversation.tools).where(Conversation.id == conversation_id)
    return tuple(connection.execute(query).scalar_one_or_none() or ())


def add_tools(
    connection: Connection,
    conversation_id: ConversationId,
    names: Sequence[str],
) -> None:
    """Add tools to those that were picked for a conversation. The caller holds its row's lock."""
    known = get_tools(connection, conversation_id)
    connection.execute(
        update(Conversation)
        .where(Conversation.id == conversation_id)
        .values(tools=list(dict.fromkeys([*known, *names]))),
    )


def _view(row: AnyRow) -> ConversationView:
    return ConversationView(**row._asdict())
