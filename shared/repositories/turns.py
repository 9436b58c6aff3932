"""Turns: posting, reading and claiming them."""

from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    and_,
    bindparam,
    case,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.orm import aliased

from shared.attachment import Attachment
from shared.clock import now
from shared.database import AnyRow, AnyUpdate
from shared.ids import ConversationId, TurnId
from shared.repositories import messages
from shared.repositories.tool_calls import is_delegated
from shared.tables import Conversation, Message, PlanStep, ToolCall, Turn
from shared.task_names import TurnTask
from shared.turn_state import (
    ACTIVE_STATUSES,
    OPEN_STATUSES,
    OPEN_STEPS,
    Fence,
    Inbox,
    TurnMode,
    TurnStatus,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTurn:
    """What the API writes down when it accepts a turn."""

    id: TurnId
    conversation_id: ConversationId
    mode: TurnMode
    input: str
    instructions: str | None
    model: str | None
    tools: tuple[str, ...] | None
    metadata: dict[str, object]
    attachments: tuple[Attachment, ...] = ()
    idempotency_key: str | None = None
    idempotency_hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedTurn:
    """All that a worker needs to go on with a turn it has claimed."""

    id: TurnId
    conversation_id: ConversationId
    mode: TurnMode
    input: str
    attachments: tuple[Attachment, ...]
    instructions: str | None
    model: str | None
    tools: tuple[str, ...] | None
    phase: str | None
    # Messages before this position are the history.
    first_position: int
    attempt: int
    crashes: int
    stream_epoch: int
    deadline_at: datetime
    # Time left until the deadline when the claim was made, by the store's clock.
    remaining_s: float
    # Time since the first claim, by the store's clock.
    elapsed_s: float
    inbox: Inbox

    @property
    def fence(self) -> Fence:
        """The right to write that this claim gives."""
        return Fence(self.id, self.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnView:
    """A turn as the API shows it."""

    id: TurnId
    conversation_id: ConversationId
    number: int
    status: TurnStatus
    phase: str | None
    mode: TurnMode
    # Position of the input among the messages; None until the first claim.
    first_position: int | None
    attempt: int
    stream_epoch: int
    answer: str | None
    usage: dict[str, object] | None
    iterations: int | None
    compacted: bool
    error: dict[str, object] | None
    cancel_by: str | None
    cancel_reason: str | None
    attachments: tuple[Attachment, ...]
    metadata: dict[str, object]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    idempotency_hash: str | None

    @property
    def elapsed_s(self) -> float | None:
        """Seconds from the first claim to the end; None before the end or without a claim."""
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds()


_VIEW_FIELDS = fields(TurnView)
# What `view_turn` reads.
VIEW_COLUMNS = (
    Turn.id,
    Turn.conversation_id,
    Turn.number,
    Turn.status,
    Turn.phase,
    Turn.mode,
    Turn.first_position,
    Turn.attempt,
    Turn.stream_epoch,
    Turn.answer,
    Turn.usage,
    Turn.iterations,
    Turn.compacted,
    Turn.error,
    Turn.cancel_by,
    Turn.cancel_reason,
    Turn.attachments,
    Turn.metadata_.label("metadata"),
    Turn.created_at,
    Turn.started_at,
    Turn.finished_at,
    Turn.idempotency_hash,
)


# Statements are built once: building them costs more than running them.
_INSERT = (
    insert(Turn)
    .values(
        status=TurnStatus.QUEUED,
        attempt=0,
        crashes=0,
        rung_at=now(),
        rings=1,
        pending_injections=0,
        injection_count=0,
        stream_epoch=1,
        compacted=False,
        created_at=now(),
    )
    .returning(*VIEW_COLUMNS)
)
_BY_ID = select(*VIEW_COLUMNS).where(Turn.id == bindparam("turn_id"))
_BY_KEY = select(*VIEW_COLUMNS).where(Turn.idempotency_key == bindparam("key"))


def insert_turn(connection: Connection, turn: NewTurn, number: int) -> TurnView:
    """Write down a posted turn as queued and rung; its doorbell follows the commit."""
    row = connection.execute(
        _INSERT,
        {
            "id": turn.id,
            "conversation_id": turn.conversation_id,
            "number": number,
            "mode": turn.mode,
            "input": turn.input,
            "attachments": turn.attachments,
            "instructions": turn.instructions,
            "model": turn.model,
            "tools": list(turn.tools) if turn.tools is not None else None,
            "metadata": turn.metadata,
            "idempotency_key": turn.idempotency_key,
            "idempotency_hash": turn.idempotency_hash,
        },
    ).one()
    return view_turn(row)


def get_turn(connection: Connection, turn_id: TurnId) -> TurnView | None:
    """Return the turn, or None."""
    row = connection.execute(_BY_ID, {"turn_id": turn_id}).one_or_none()
    return view_turn(row) if row else None


def get_turn_by_idempotency_key(connection: Connection, key: str) -> TurnView | None:
    """Return the turn that was posted with the key, or None."""
    row = connection.execute(_BY_KEY, {"key": key}).one_or_none()
    return view_turn(row) if row else None


def get_statuses(connection: Connection, turn_ids: list[TurnId]) -> dict[TurnId, TurnStatus]:
    """Return the status of each turn that exists."""
    rows = connection.execute(select(Turn.id, Turn.status).where(Turn.id.in_(turn_ids)))
    return {TurnId(row.id): TurnStatus(row.status) for row in rows}


def has_open_turn(connection: Connection, conversation_id: ConversationId) -> bool:
    """Tell whether a turn of the conversation is queued, running or waiting."""
    query = select(Turn.id).where(
        Turn.conversation_id == conversation_id,
        Turn.status.in_(OPEN_STATUSES),
    )
    return connection.execute(query.limit(1)).one_or_none() is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedAs:
    """What a turn asked for besides its input."""

    model: str | None = None
    instructions: str | None = None
    tools: tuple[str, ...] | None = None


def get_newest_request(connection: Connection, conversation_id: ConversationId) -> RequestedAs:
    """Return what the newest turn of a conversation asked for; nothing if there is no turn."""
    query = (
        select(Turn.model, Turn.instructions, Turn.tools)
        .where(Turn.conversation_id == conversation_id)
        .order_by(Turn.number.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        return RequestedAs()
    tools = None if row.tools is None else tuple(row.tools)
    return RequestedAs(model=row.model, instructions=row.instructions, tools=tools)


def count_turns_ahead(connection: Connection, turn: TurnView) -> int:
    """Count the open turns of the conversation that come before a queued turn."""
    query = select(func.count()).where(
        Turn.conversation_id == turn.conversation_id,
        Turn.status.in_(OPEN_STATUSES),
        Turn.number < turn.number,
    )
    return connection.execute(query).scalar_one()


def list_turns(
    connection: Connection,
    conversation_id: ConversationId,
    *,
    after_number: int,
    limit: int,
) -> list[TurnView]:
    """Return turns of the conversation with a higher number, in order."""
    query = (
        select(*VIEW_COLUMNS)
        .where(Turn.conversation_id == conversation_id, Turn.number > after_number)
        .order_by(Turn.number)
        .limit(limit)
    )
    return [view_turn(row) for row in connection.execute(query)]


def is_unheld() -> ColumnElement[bool]:
    """Say that no live lease is held on the turn: never claimed, released, or lapsed."""
    return or_(Turn.lease_until.is_(None), Turn.lease_until < now())


def is_claimable() -> ColumnElement[bool]:
    """Say that a worker may claim the turn now; the sweep rings exactly these."""
    other = aliased(Turn)
    goes_first = or_(
        other.status.in_(ACTIVE_STATUSES),
        and_(other.status == TurnStatus.QUEUED, other.number < Turn.number),
    )
    is_blocked = exists().where(other.conversation_id == Turn.conversation_id, goes_first)
    return or_(
        and_(Turn.status == TurnStatus.QUEUED, ~is_blocked),
        and_(Turn.status == TurnStatus.RUNNING, Turn.lease_until < now()),
        is_ready_to_go_on(),
    )


def is_ready_to_go_on() -> ColumnElement[bool]:
    """Say that the turn was let go of and may go on now: nothing that it waits for is open."""
    return and_(
        Turn.status.in_(ACTIVE_STATUSES),
        Turn.lease_until.is_(None),
        or_(Turn.not_before.is_(None), Turn.not_before <= now()),
        ~exists().where(ToolCall.turn_id == Turn.id, is_delegated()),
        ~exists().where(PlanStep.turn_id == Turn.id, PlanStep.state.in_(OPEN_STEPS)),
    )


def wake_turn(connection: Connection, turn_id: TurnId) -> TurnTask | None:
    """Note that a parked turn is rung, if it may go on; return its doorbell."""
    wake = (
        update(Turn)
        .where(Turn.id == turn_id, is_ready_to_go_on())
        .values(rung_at=now(), rings=1)
        .returning(Turn.conversation_id, Turn.attempt)
    )
    row = connection.execute(wake).one_or_none()
    if row is None:
        return None
    return TurnTask(
        turn_id=turn_id,
        conversation_id=ConversationId(row.conversation_id),
        attempt=row.attempt,
    )


def _claim_statement() -> AnyUpdate:
    is_lapsed = and_(Turn.lease_until.is_not(None), Turn.lease_until < now())
    next_position = (
        select(func.coalesce(func.max(Message.position), 0) + 1)
        .where(Message.conversation_id == Turn.conversation_id)
        .scalar_subquery()
    )
    return (
        update(Turn)
        .where(Turn.id == bindparam("claimed_id"), is_claimable())
        .values(
            status=TurnStatus.RUNNING,
            attempt=Turn.attempt + 1,
            crashes=Turn.crashes + case((is_lapsed, 1), else_=0),
            # Whoever held it before may still be about to append.
            stream_epoch=Turn.stream_epoch + case((Turn.attempt > 0, 1), else_=0),
            lease_owner=bindparam("owner"),
            lease_until=now(bindparam("lease_s", type_=Float)),
            deadline_at=func.coalesce(
                Turn.deadline_at,
                now(func.coalesce(Turn.remaining_s, bindparam("turn_timeout_s", type_=Float))),
            ),
            first_position=func.coalesce(Turn.first_position, next_position),
            started_at=func.coalesce(Turn.started_at, now()),
            not_before=None,
            rung_at=None,
            rings=0,
        )
        .returning(
            Turn.id,
            Turn.conversation_id,
            Turn.mode,
            Turn.input,
            Turn.attachments,
            Turn.instructions,
            Turn.model,
            Turn.tools,
            Turn.phase,
            Turn.first_position,
            Turn.attempt,
            Turn.crashes,
            Turn.stream_epoch,
            Turn.deadline_at,
            Turn.started_at,
            Turn.pending_injections,
            Turn.cancel_requested_at,
            now().label("now"),
        )
    )


_CLAIM = _claim_statement()


def claim_turn(
    connection: Connection,
    turn_id: TurnId,
    *,
    owner: str,
    lease_s: float,
    turn_timeout_s: float,
) -> ClaimedTurn | None:
    """Take the turn for the process `owner`, if it may be claimed now.

    The first claim gives the input its place among the messages; every later one raises the
    stream's epoch. A claim after a lapsed lease counts as a crash. Returns None if there is
    nothing to claim: another worker holds it, it waits its turn, has ended, or does not exist.
    Raises IntegrityError if another turn of the conversation became active meanwhile.
    """
    given = {
        "claimed_id": turn_id,
        "owner": owner,
        "lease_s": lease_s,
        "turn_timeout_s": turn_timeout_s,
    }
    row = connection.execute(_CLAIM, given).one_or_none()
    if row is None:
        return None
    claimed = _claimed(row)
    if claimed.attempt == 1:
        messages.insert_message(
            connection,
            turn_id=claimed.id,
            conversation_id=claimed.conversation_id,
            position=claimed.first_position,
            role="user",
            kind="input",
            content=claimed.input,
            attachments=claimed.attachments,
        )
    return claimed


def is_held() -> ColumnElement[bool]:
    """Say that the fence given as `held_id` and `held_attempt` still holds the turn."""
    return and_(
        Turn.id == bindparam("held_id"),
        Turn.attempt == bindparam("held_attempt"),
        Turn.status == TurnStatus.RUNNING,
        Turn.lease_owner.is_not(None),
    )


def fence_parameters(fence: Fence) -> dict[str, object]:
    """Return what `is_held` asks for."""
    return {"held_id": fence.turn_id, "held_attempt": fence.attempt}


@cache
def _fenced(*columns: str) -> AnyUpdate:
    values: dict[str, object] = {column: bindparam(f"new_{column}") for column in columns}
    return (
        update(Turn)
        .where(is_held())
        .values(lease_until=now(bindparam("lease_s", type_=Float)), **values)
        .returning(Turn.pending_injections, Turn.cancel_requested_at)
    )


def fence_write(
    connection: Connection,
    fence: Fence,
    *,
    lease_s: float,
    **values: object,
) -> Inbox | None:
    """Lock the turn for the holder of the fence, renew its lease and set values on it.

    Returns what waits for the turn, or None if the lease is lost: then write nothing.
    """
    given = {f"new_{column}": value for column, value in values.items()}
    row = connection.execute(
        _fenced(*values),
        fence_parameters(fence) | {"lease_s": lease_s} | given,
    ).one_or_none()
    if row is None:
        return None
    return Inbox(
        pending_injections=row.pending_injections,
        is_cancel_requested=row.cancel_requested_at is not None,
    )


@dataclass(frozen=True, slots=True)
class StreamOwner:
    """Which epoch a turn's stream has, and which attempt may write to it."""

    epoch: int
    attempt: int


def get_stream_owner(connection: Connection, turn_id: TurnId) -> StreamOwner | None:
    """Return the turn's epoch and attempt, or None if the turn is unknown."""
    query = select(Turn.stream_epoch, Turn.attempt).where(Turn.id == turn_id)
    row = connection.execute(query).one_or_none()
    return StreamOwner(epoch=row.stream_epoch, attempt=row.attempt) if row else None


def raise_stream_epoch(
    connection: Connection,
    turn_id: TurnId,
    *,
    seen: StreamOwner,
) -> StreamOwner | None:
    """Raise the epoch by one, unless it or the attempt has changed since; return what it is."""
    connection.execute(
        update(Turn)
        .where(
            Turn.id == turn_id,
            Turn.stream_epoch == seen.epoch,
            Turn.attempt == seen.attempt,
        )
        .values(stream_epoch=seen.epoch + 1),
    )
    return get_stream_owner(connection, turn_id)


_TAKE_NUMBER = (
    update(Conversation)
    .where(Conversation.id == bindparam("conversation"))
    .values(turn_count=Conversation.turn_count + 1, updated_at=now())
    .returning(Conversation.turn_count)
)


def take_turn_number(connection: Connection, conversation_id: ConversationId) -> int | None:
    """Lock the conversation and return the number of its next turn; None if it is unknown."""
    given = {"conversation": conversation_id}
    return connection.execute(_TAKE_NUMBER, given).scalar_one_or_none()


def _claimed(row: AnyRow) -> ClaimedTurn:
    return ClaimedTurn(
        id=TurnId(row.id),
        conversation_id=ConversationId(row.conversation_id),
        mode=TurnMode(row.mode),
        input=row.input,
        attachments=row.attachments,
        instructions=row.instructions,
        model=row.model,
        tools=tuple(row.tools) if row.tools is not None else None,
        phase=row.phase,
        first_position=row.first_position,
        attempt=row.attempt,
        crashes=row.crashes,
        stream_epoch=row.stream_epoch,
        deadline_at=row.deadline_at,
        remaining_s=(row.deadline_at - row.now).total_seconds(),
        elapsed_s=(row.now - row.started_at).total_seconds(),
        inbox=Inbox(
            pending_injections=row.pending_injections,
            is_cancel_requested=row.cancel_requested_at is not None,
        ),
    )


def view_turn(row: AnyRow) -> TurnView:
    """Return a row that holds VIEW_COLUMNS, perhaps among others, as a value."""
    given = {field.name: getattr(row, field.name) for field in _VIEW_FIELDS}
    given["status"] = TurnStatus(given["status"])
    given["mode"] = TurnMode(given["mode"])
    return TurnView(**given)
