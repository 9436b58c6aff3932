"""Messages to open turns: injected text and cancels."""

from http import HTTPStatus

from fastapi import APIRouter, Response
from sqlalchemy import Connection

from api import views
from api.dependencies import IdempotencyKeyOf, Parts, PartsOf, TurnIdOf
from api.idempotency import hash_request, write_once
from api.json_route import JsonRoute
from api.routes.turns import read_turn
from api.schemas import PostApproval, PostCancel, PostInjection
from shared.control import ControlMessage, send_control
from shared.errors import (
    ApprovalDecidedError,
    IdempotencyMismatchError,
    InboxFullError,
    NotFoundError,
    TurnEndedError,
    TurnmillError,
)
from shared.event_writer import GuestWriter
from shared.events import Inject
from shared.ids import InjectionId, ToolCallId, TurnId, new_injection_id
from shared.repositories import delegated_calls, endings, injections, tool_calls, turns
from shared.repositories.delegated_calls import USER_SPOKE, Settled
from shared.repositories.endings import CancelRequest, EndedTurn
from shared.repositories.injections import MAX_PENDING
from shared.repositories.tool_calls import StoredToolCall
from shared.repositories.turns import TurnView
from shared.turn_end import announce_end, announce_settled
from shared.turn_state import OPEN_STATUSES, ApprovalState

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


@router.post("/approvals/{tool_call_id}")
async def post_approval(
    turn_id: TurnIdOf,
    tool_call_id: str,
    body: PostApproval,
    parts: PartsOf,
) -> views.Approval:
    """Approve or refuse a tool call. The turn goes on once all calls of its round are decided."""
    call_id = ToolCallId(tool_call_id)
    call = await parts.background.complete(_decide(parts, turn_id, call_id, body))
    return views.show_approval(call)


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

    def work(connection: Connection) -> tuple[views.Injection, Settled | None]:
        injection = _accept(connection, turn_id, injection_id, body, key)
        if injection.id != injection_id:
            return injection, None
        # Whoever says something new does not wait to be asked.
        return injection, delegated_calls.refuse_open_calls(connection, turn_id, USER_SPOKE)

    injection, refused = await write_once(parts.database, work)
    is_new = refused is not None
    if refused is not None:
        await parts.background.follow_up(_tell_injected(parts, injection, refused))
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


async def _decide(
    parts: Parts,
    turn_id: TurnId,
    call_id: ToolCallId,
    body: PostApproval,
) -> StoredToolCall:
    def work(connection: Connection) -> tuple[Settled | None, StoredToolCall]:
        settled = delegated_calls.decide_call(
            connection,
            turn_id,
            call_id,
            is_approved=body.approve,
            reason=body.reason,
        )
        turn = _require(turns.get_turn(connection, turn_id), turn_id)
        calls = tool_calls.get_tool_calls(connection, turn_id)
        call = next((it for it in calls if it.id == call_id and it.approval), None)
        if call is None:
            raise NotFoundError(f"Turn {turn_id} has no tool call {call_id} to approve: check both")
        if settled is None:
            _check_repeated(turn, call, body)
        return settled, call

    settled, call = await parts.database.write(work)
    if settled is not None:
        await parts.background.follow_up(_tell_settled(parts, settled))
    return call


def _check_repeated(turn: TurnView, call: StoredToolCall, body: PostApproval) -> None:
    """Let the same decision pass again. Raises ConflictError for any other that comes too late."""
    wanted = ApprovalState.APPROVED if body.approve else ApprovalState.REFUSED
    if call.approval is wanted:
        return
    if turn.status not in OPEN_STATUSES:
        raise TurnEndedError(
            f"Turn {turn.id} has ended ({turn.status}): nothing can be approved any more",
            turn.status,
        )
    raise ApprovalDecidedError(f"The tool call {call.id} was {call.approval} before")


async def _tell_injected(parts: Parts, injection: views.Injection, refused: Settled) -> None:
    event = Inject(
        injection_id=injection.id,
        state=injection.state,
        content=injection.content,
    )
    await GuestWriter(parts.streams, injection.turn_id).emit(event)
    await _tell_settled(parts, refused)
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


async def _tell_settled(parts: Parts, settled: Settled) -> None:
    await announce_settled(
        settled,
        writer=GuestWriter(parts.streams, settled.turn_id),
        doorbell=parts.doorbell,
    )


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
