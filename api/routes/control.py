"""Messages to open turns: injected text and cancels."""

from http import HTTPStatus

from fastapi import APIRouter, Response
from sqlalchemy import Connection

from api import views
from api.dependencies import IdempotencyKeyOf, Parts, PartsOf, TurnIdOf
from api.idempotency import hash_request, write_once
from api.json_route import JsonRoute
from api.routes.turns import read_turn
from api.schemas import PostCancel, PostInjection
from shared.control import ControlMessage, send_control
from shared.errors import (
    IdempotencyMismatchError,
    InboxFullError,
    NotFoundError,
    TurnEndedError,
    TurnmillError,
)
from shared.event_writer import GuestWriter
from shared.events import Inject
from shared.ids import InjectionId, TurnId, new_injection_id
from shared.repositories import endings, injections, turns
from shared.repositories.endings import CancelRequest, EndedTurn
from shared.repositories.injections import MAX_PENDING
from shared.repositories.turns import TurnView
from shared.turn_end import announce_end
from shared.turn_state import OPEN_STATUSES

CANCELLED_BY = "api"

router = APIRouter(prefix="/v1/turns/{turn_id}", tags=["turns"], route_class=JsonRoute)


@router.post("/inject", status_code=HTTPStatus.ACCEPTED)
async def post_injection(
    turn_id: TurnIdOf,
    body: PostInjection,
    parts: PartsOf,
    response: Response,
    idempotency_key: IdempotencyKeyOf = None,
) -> views.Injection:
    """Take a message for an open turn; it is answered in it, or returned to the sender."""
    parts.check_length("content", body.content)
    injection, is_new = await parts.background.complete(
        _inject(parts, turn_id, body, idempotency_key),
    )
    if not is_new:
        response.status_code = HTTPStatus.OK
    return injection


@router.get("/injections")
async def list_injections(turn_id: TurnIdOf, parts: PartsOf) -> views.Page[views.Injection]:
    """Return the injected messages of a turn, oldest first."""

    def work(connection: Connection) -> list[views.Injection]:
        _require(turns.get_turn(connection, turn_id), turn_id)
        found = injections.list_injections(connection, turn_id)
        return [views.show_injection(item) for item in found]

    return views.Page(items=await parts.database.read(work), next=None)


@router.post("/cancel", responses={202: {"model": views.Turn}})
async def post_cancel(
    turn_id: TurnIdOf,
    parts: PartsOf,
    response: Response,
    body: PostCancel | None = None,
) -> views.Turn:
    """Ask a turn to stop. 200: it has ended. 202: its worker will end it."""
    reason = body.reason if body is not None else None
    await parts.background.complete(_cancel(parts, turn_id, reason))
    turn = await read_turn(parts, turn_id)
    if turn.status in OPEN_STATUSES:
        response.status_code = HTTPStatus.ACCEPTED
    return turn


async def _inject(
    parts: Parts,
    turn_id: TurnId,
    body: PostInjection,
    key: str | None,
) -> tuple[views.Injection, bool]:
    injection_id = new_injection_id()

    def work(connection: Connection) -> views.Injection:
        return _accept(connection, turn_id, injection_id, body, key)

    injection = await write_once(parts.database, work)
    is_new = injection.id == injection_id
    if is_new:
        await parts.background.follow_up(_tell_injected(parts, injection))
    return injection, is_new


def _accept(
    connection: Connection,
    turn_id: TurnId,
    injection_id: InjectionId,
    body: PostInjection,
    key: str | None,
) -> views.Injection:
    digest = hash_request(body) if key is not None else None
    if key is not None:
        earlier = injections.get_injection_by_idempotency_key(connection, turn_id, key)
        if earlier is not None and earlier.idempotency_hash != digest:
            raise IdempotencyMismatchError(
                "The Idempotency-Key was used before with another message: use a new key",
            )
        if earlier is not None:
            return views.show_injection(earlier)
    is_accepted = injections.accept_injection(
        connection,
        turn_id,
        injection_id=injection_id,
        content=body.content,
        idempotency_key=key,
        idempotency_hash=digest,
    )
    if not is_accepted:
        raise _refusal(turns.get_turn(connection, turn_id), turn_id)
    stored = injections.list_injections(connection, turn_id)
    return next(views.show_injection(item) for item in stored if item.id == injection_id)


def _refusal(turn: TurnView | None, turn_id: TurnId) -> TurnmillError:
    if turn is None:
        return NotFoundError(f"There is no turn {turn_id}: check the id")
    if turn.status not in OPEN_STATUSES:
        return TurnEndedError(
            f"Turn {turn_id} has ended ({turn.status}): post a new turn to its conversation",
            turn.status,
        )
    return InboxFullError(
        f"Turn {turn_id} holds {MAX_PENDING} unread messages: wait until it has read some",
    )


async def _tell_injected(parts: Parts, injection: views.Injection) -> None:
    event = Inject(
        injection_id=injection.id,
        state=injection.state,
        content=injection.content,
    )
    await GuestWriter(parts.streams, injection.turn_id).emit(event)
    message = ControlMessage(
        type="inject",
        injection_id=injection.id,
        content=injection.content,
    )
    await send_control(parts.redis, injection.turn_id, message)


async def _cancel(parts: Parts, turn_id: TurnId, reason: str | None) -> None:
    request = CancelRequest(by=CANCELLED_BY, reason=reason)

    def work(connection: Connection) -> tuple[EndedTurn | None, TurnView]:
        ended = endings.request_cancel(connection, turn_id, request)
        return ended, _require(turns.get_turn(connection, turn_id), turn_id)

    ended, turn = await parts.database.write(work)
    if ended is not None:
        await parts.background.follow_up(_tell_ended(parts, ended))
    elif turn.status in OPEN_STATUSES:
        message = ControlMessage(type="cancel")
        await parts.background.follow_up(send_control(parts.redis, turn_id, message))


async def _tell_ended(parts: Parts, ended: EndedTurn) -> None:
    await announce_end(
        ended,
        writer=GuestWriter(parts.streams, ended.turn.id),
        doorbell=parts.doorbell,
    )


def _require(turn: TurnView | None, turn_id: TurnId) -> TurnView:
    if turn is None:
        raise NotFoundError(f"There is no turn {turn_id}: check the id")
    return turn
