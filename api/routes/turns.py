"""Turns: posting and reading them."""

from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from sqlalchemy import Connection

from api import sse, views
from api.dependencies import IdempotencyKeyOf, Parts, PartsOf, PositionOf, TurnIdOf
from api.event_stream import EventStreamResponse
from api.idempotency import hash_request, write_once
from api.json_route import JsonRoute
from api.reading import Reading, begin_reading
from api.schemas import PostTurn
from api.uploads import find_attachments, new_files, remove_images, store_images
from api.waiting import wait_for_end
from shared.admission import Admission, admit_turn
from shared.errors import ConflictError, NotFoundError
from shared.ids import ConversationId, TurnId, new_conversation_id, new_turn_id
from shared.repositories import files, tool_calls, turns
from shared.repositories.turns import NewTurn, TurnView
from shared.task_names import TurnTask
from shared.turn_state import IfBusy, TurnMode, TurnStatus

MAX_WAIT_S = 60.0

router = APIRouter(prefix="/v1/turns", tags=["turns"], route_class=JsonRoute)


@dataclass(frozen=True, slots=True)
class _Posted:
    admission: Admission
    turn: views.Turn


@router.post(
    "",
    status_code=HTTPStatus.ACCEPTED,
    response_model=views.Turn,
    responses={200: {"description": "A repeated request, or the turn's events"}},
)
async def post_turn(
    body: PostTurn,
    parts: PartsOf,
    response: Response,
    idempotency_key: IdempotencyKeyOf = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> views.Turn | Response:
    """Accept a turn. With `Accept: text/event-stream` its events are the answer."""
    parts.check_length("input", body.text)
    parts.check_length("instructions", body.instructions or "")
    parts.check_images(len(body.images))
    posted = await parts.background.complete(_post(parts, body, idempotency_key))
    headers = {"Location": f"/v1/turns/{posted.turn.id}"}
    if sse.MEDIA_TYPE in accept.lower():
        # The turn is accepted whatever becomes of Redis: the client waits for its events.
        return EventStreamResponse(
            parts.feeds, Reading(parts.feeds, posted.turn.id), headers=headers
        )
    response.headers.update(headers)
    if not posted.admission.is_new:
        response.status_code = HTTPStatus.OK
    return posted.turn


@router.get("/{turn_id}")
async def get_turn(
    turn_id: TurnIdOf,
    parts: PartsOf,
    wait: Annotated[
        float,
        Query(ge=0, le=MAX_WAIT_S, description="Seconds to hold the answer until the end."),
    ] = 0,
) -> views.Turn:
    """Return a turn, at once or when it has ended."""
    turn = await read_turn(parts, turn_id)
    if wait == 0 or turn.finished_at is not None:
        return turn
    await wait_for_end(parts.feeds, turn_id, wait)
    return await read_turn(parts, turn_id)


@router.get(
    "/{turn_id}/events",
    status_code=HTTPStatus.OK,
    response_class=EventStreamResponse,
    responses={204: {"description": "The client has all events"}},
)
async def get_events(turn_id: TurnIdOf, parts: PartsOf, after: PositionOf) -> Response:
    """Stream a turn's events after the last one the client has, to the terminal one."""
    reading = await begin_reading(parts.feeds, turn_id, after)
    if reading is None:
        return Response(status_code=HTTPStatus.NO_CONTENT)
    return EventStreamResponse(parts.feeds, reading)


async def read_turn(parts: Parts, turn_id: TurnId) -> views.Turn:
    """Return the turn as clients see it. Raises NotFoundError, StorageError."""
    turn = await parts.database.read(lambda connection: _show(connection, turn_id))
    if turn is None:
        raise NotFoundError(f"There is no turn {turn_id}: check the id")
    return turn


async def _post(parts: Parts, body: PostTurn, idempotency_key: str | None) -> _Posted:
    turn = _new_turn(body, idempotency_key)
    max_bytes = parts.settings.max_file_bytes
    images = await store_images(parts.files, body.images, max_bytes=max_bytes)

    def work(connection: Connection) -> _Posted:
        admission = admit_turn(
            connection,
            replace(turn, attachments=find_attachments(connection, images)),
            starts_conversation=body.conversation_id is None,
            if_busy=IfBusy(body.if_busy),
        )
        if admission.is_new:
            files.insert_files(connection, new_files(images))
        return _Posted(admission, _show_admitted(connection, admission))

    try:
        posted = await write_once(parts.database, work)
    except (ConflictError, NotFoundError):
        await remove_images(parts.files, images)
        raise
    if posted.admission.is_new:
        await parts.background.follow_up(_start(parts, posted.admission.turn))
    else:
        await remove_images(parts.files, images)
    return posted


async def _start(parts: Parts, turn: TurnView) -> None:
    await parts.streams.create(turn)
    await parts.doorbell.ring(TurnTask(turn_id=turn.id, conversation_id=turn.conversation_id))


def _new_turn(body: PostTurn, idempotency_key: str | None) -> NewTurn:
    return NewTurn(
        id=new_turn_id(),
        conversation_id=ConversationId(body.conversation_id)
        if body.conversation_id is not None
        else new_conversation_id(),
        mode=TurnMode(body.mode),
        input=body.text,
        instructions=body.instructions,
        model=body.model,
        tools=tuple(body.tools) if body.tools is not None else None,
        metadata=body.metadata,
        idempotency_key=idempotency_key,
        idempotency_hash=hash_request(body) if idempotency_key is not None else None,
    )


def _show_admitted(connection: Connection, admission: Admission) -> views.Turn:
    calls = [] if admission.is_new else tool_calls.get_tool_calls(connection, admission.turn.id)
    return views.show_turn(admission.turn, calls=calls, queue_position=admission.queue_position)


def _show(connection: Connection, turn_id: TurnId) -> views.Turn | None:
    turn = turns.get_turn(connection, turn_id)
    if turn is None:
        return None
    is_queued = turn.status is TurnStatus.QUEUED
    return views.show_turn(
        turn,
        calls=[] if is_queued else tool_calls.get_tool_calls(connection, turn_id),
        queue_position=turns.count_turns_ahead(connection, turn) if is_queued else None,
    )
