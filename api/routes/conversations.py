"""Conversations: listing, reading and deleting them."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from sqlalchemy import Connection

from api import views
from api.cursors import decode_cursor, encode_cursor
from api.dependencies import ConversationIdOf, LimitOf, PartsOf, check_number
from api.json_route import JsonRoute
from shared.errors import ConflictError, NotFoundError
from shared.ids import ConversationId
from shared.repositories import conversations, messages, summaries, tool_calls, turns
from shared.repositories.conversations import ConversationView
from shared.repositories.messages import StoredMessage
from shared.repositories.turns import TurnView

DEFAULT_LIMIT = 50

router = APIRouter(prefix="/v1/conversations", tags=["conversations"], route_class=JsonRoute)


@router.get("")
async def list_conversations(
    parts: PartsOf,
    after: Annotated[str | None, Query()] = None,
    limit: LimitOf = DEFAULT_LIMIT,
) -> views.Page[views.Conversation]:
    """Return conversations, most recently used first."""
    start = decode_cursor(after) if after is not None else None
    found = await parts.database.read(
        lambda connection: conversations.list_conversations(
            connection, after=start, limit=limit + 1
        ),
    )
    shown = found[:limit]
    return views.Page(
        items=[views.show_conversation(item) for item in shown],
        next=encode_cursor(shown[-1]) if len(found) > limit else None,
    )


@router.get("/{conversation_id}")
async def get_conversation(
    conversation_id: ConversationIdOf,
    parts: PartsOf,
) -> views.Conversation:
    """Return a conversation."""
    found = await parts.database.read(lambda connection: _require(connection, conversation_id))
    return views.show_conversation(found)


@router.get("/{conversation_id}/messages")
async def list_messages(
    conversation_id: ConversationIdOf,
    parts: PartsOf,
    after: Annotated[int, Depends(check_number("messages"))],
    limit: LimitOf = DEFAULT_LIMIT,
) -> views.Page[views.Message | views.Summary]:
    """Return messages in order, those after a position, each summary after the last it covers.

    limit: of messages; summaries are not counted.
    """

    def work(connection: Connection) -> views.Page[views.Message | views.Summary]:
        _require(connection, conversation_id)
        found = messages.list_messages(
            connection,
            conversation_id,
            after_position=after,
            limit=limit + 1,
        )
        shown = found[:limit]
        return views.Page(
            items=_with_summaries(connection, conversation_id, shown),
            next=str(shown[-1].position) if len(found) > limit else None,
        )

    return await parts.database.read(work)


@router.get("/{conversation_id}/turns")
async def list_turns(
    conversation_id: ConversationIdOf,
    parts: PartsOf,
    after: Annotated[int, Depends(check_number("turns"))],
    limit: LimitOf = DEFAULT_LIMIT,
) -> views.Page[views.Turn]:
    """Return turns in order, those after a number."""

    def work(connection: Connection) -> views.Page[views.Turn]:
        _require(connection, conversation_id)
        found = turns.list_turns(connection, conversation_id, after_number=after, limit=limit + 1)
        shown = found[:limit]
        return views.Page(
            items=_show_turns(connection, shown),
            next=str(shown[-1].number) if len(found) > limit else None,
        )

    return await parts.database.read(work)


@router.delete("/{conversation_id}", status_code=HTTPStatus.NO_CONTENT)
async def delete_conversation(conversation_id: ConversationIdOf, parts: PartsOf) -> None:
    """Delete a conversation and all that belongs to it."""
    await parts.database.write(lambda connection: _delete(connection, conversation_id))


def _delete(connection: Connection, conversation_id: ConversationId) -> None:
    # Taking a number locks the conversation, so that no turn is accepted while it is deleted.
    if turns.take_turn_number(connection, conversation_id) is None:
        raise _unknown(conversation_id)
    if turns.has_open_turn(connection, conversation_id):
        raise ConflictError(
            f"Conversation {conversation_id} has an open turn: cancel it or wait for its end",
        )
    conversations.delete_conversation(connection, conversation_id)


def _with_summaries(
    connection: Connection,
    conversation_id: ConversationId,
    shown: Sequence[StoredMessage],
) -> list[views.Message | views.Summary]:
    if not shown:
        return []
    checkpoints = summaries.list_checkpoints(
        connection,
        conversation_id,
        from_position=shown[0].position,
        until_position=shown[-1].position,
    )
    items: list[views.Message | views.Summary] = []
    for message in shown:
        items.append(views.show_message(message))
        items += [
            views.show_summary(checkpoint)
            for checkpoint in checkpoints
            if checkpoint.until_position == message.position
        ]
    return items


def _show_turns(connection: Connection, found: Sequence[TurnView]) -> list[views.Turn]:
    return [
        views.show_turn(
            turn,
            calls=tool_calls.get_tool_calls(connection, turn.id),
            queue_position=turns.count_turns_ahead(connection, turn),
        )
        for turn in found
    ]


def _require(connection: Connection, conversation_id: ConversationId) -> ConversationView:
    found = conversations.get_conversation(connection, conversation_id)
    if found is None:
        raise _unknown(conversation_id)
    return found


def _unknown(conversation_id: ConversationId) -> NotFoundError:
    return NotFoundError(f"There is no conversation {conversation_id}: check the id")
