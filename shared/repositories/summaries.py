"""Checkpoints: what stands for the older messages of a conversation."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast

from sqlalchemy import Connection, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite

from shared.clock import now
from shared.database import AnyRow
from shared.ids import ConversationId
from shared.tables import Conversation, Summary

Method = Literal["llm", "truncate"]

# Older ones are looked at only where newer ones cannot be read.
MAX_LOOKED_AT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What stands for a conversation's messages up to a position."""

    until_position: int
    method: Method
    # "" where messages were left out and there was no summary before.
    content: str
    # Of the content, as measured.
    tokens: int
    # The model that wrote it.
    model: str | None
    created_at: datetime | None = None


_COLUMNS = (
    Summary.until_position,
    Summary.method,
    Summary.content,
    Summary.tokens,
    Summary.model,
    Summary.created_at,
)
_NEWEST = (
    select(*_COLUMNS)
    .where(
        Summary.conversation_id == bindparam("conversation"),
        Summary.until_position < bindparam("before_position"),
    )
    .order_by(Summary.until_position.desc())
    .limit(MAX_LOOKED_AT)
)
_VERSION = select(Conversation.history_version).where(Conversation.id == bindparam("conversation"))
# The lock holds off whoever is changing a message until the checkpoint is there to be forgotten.
_VERSION_LOCKED = _VERSION.with_for_update(read=True)


def get_history_version(connection: Connection, conversation_id: ConversationId) -> int:
    """Return the version of a conversation's messages, to be given to `insert_checkpoint`."""
    version = connection.execute(_VERSION, {"conversation": conversation_id}).scalar_one()
    return int(version)


def get_checkpoint(
    connection: Connection,
    conversation_id: ConversationId,
    *,
    before_position: int,
) -> Checkpoint | None:
    """Return the newest checkpoint that covers only messages before a position.

    A row that is no checkpoint (of an unknown kind, or a summary without a text) is passed over.
    """
    given = {"conversation": conversation_id, "before_position": before_position}
    rows = connection.execute(_NEWEST, given)
    return next((found for row in rows if (found := _checkpoint(row)) is not None), None)


def lock_history(connection: Connection, conversation_id: ConversationId) -> int | None:
    """Hold off changes to a conversation's messages; return their version, None if it is gone."""
    given = {"conversation": conversation_id}
    version = connection.execute(_VERSION_LOCKED, given).scalar_one_or_none()
    return None if version is None else int(version)


def insert_checkpoint(
    connection: Connection,
    conversation_id: ConversationId,
    checkpoint: Checkpoint,
) -> None:
    """Write a checkpoint down; one that is there already for its position stands.

    The caller has locked the history and knows that it is the one that was read.
    """
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    connection.execute(
        insert(Summary)
        .values(
            conversation_id=conversation_id,
            until_position=checkpoint.until_position,
            method=checkpoint.method,
            content=checkpoint.content,
            tokens=checkpoint.tokens,
            model=checkpoint.model,
            created_at=now(),
        )
        .on_conflict_do_nothing(),
    )


def list_checkpoints(
    connection: Connection,
    conversation_id: ConversationId,
    *,
    from_position: int,
    until_position: int,
) -> list[Checkpoint]:
    """Return the checkpoints that end within a range of positions, both included, in order."""
    query = (
        select(*_COLUMNS)
        .where(
            Summary.conversation_id == conversation_id,
            Summary.until_position.between(from_position, until_position),
        )
        .order_by(Summary.until_position)
    )
    found = map(_checkpoint, connection.execute(query))
    return [checkpoint for checkpoint in found if checkpoint is not None]


def _checkpoint(row: AnyRow) -> Checkpoint | None:
    is_readable = row.method == "truncate" or (row.method == "llm" and row.content.strip())
    if not is_readable:
        return None
    return Checkpoint(
        until_position=row.until_position,
        method=cast("Method", row.method),
        content=row.content,
        tokens=row.tokens,
        model=row.model,
        created_at=row.created_at,
    )
