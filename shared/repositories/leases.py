"""Leases: renewing, releasing and finding what nobody holds."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, and_, case, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute

from shared.clock import now
from shared.ids import ConversationId, TurnId
from shared.repositories.turns import is_claimable, is_unheld
from shared.tables import Turn
from shared.turn_state import OPEN_STATUSES, Fence, Inbox, TurnStatus

# Pause before a doorbell is rung again for the same state: doubling up to ten minutes.
RING_AGAIN_S = (30.0, 60.0, 120.0, 240.0, 480.0, 600.0)
# With an empty queue a doorbell was lost, unless it is just being answered.
RING_AGAIN_IF_EMPTY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Doorbell:
    """A turn whose task is to be sent."""

    turn_id: TurnId
    conversation_id: ConversationId
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Doomed:
    """A turn that nobody holds and that needs no worker to end."""

    turn_id: TurnId
    is_cancel_requested: bool
    is_past_deadline: bool


def renew_leases(
    connection: Connection,
    fences: list[Fence],
    *,
    owner: str,
    lease_s: float,
) -> dict[Fence, Inbox | None]:
    """Renew the leases that the process still holds; a missing fence is a lost lease.

    A lapsed lease that nobody has taken is renewed as well. None stands for one whose row
    somebody has locked: it is not waited for, since that would cost all the others.
    """
    is_own = and_(
        Turn.id.in_([fence.turn_id for fence in fences]),
        Turn.lease_owner == owner,
        Turn.status == TurnStatus.RUNNING,
    )
    free = select(Turn.id).where(is_own).with_for_update(skip_locked=True)
    renew = (
        update(Turn)
        .where(is_own, Turn.id.in_(list(connection.execute(free).scalars())))
        .values(lease_until=now(lease_s))
        .returning(Turn.id, Turn.attempt, Turn.pending_injections, Turn.cancel_requested_at)
    )
    renewed = {
        Fence(TurnId(row.id), row.attempt): Inbox(
            pending_injections=row.pending_injections,
            is_cancel_requested=row.cancel_requested_at is not None,
        )
        for row in connection.execute(renew)
    }
    held = connection.execute(select(Turn.id, Turn.attempt).where(is_own))
    locked: dict[Fence, Inbox | None] = {Fence(TurnId(row.id), row.attempt): None for row in held}
    return locked | renewed


def release_lease(connection: Connection, fence: Fence) -> bool:
    """Let go of a running turn, so that any worker may claim it without counting a crash."""
    return _let_go(connection, fence, rung_at=now(), rings=1)


def park_turn(connection: Connection, fence: Fence, delay_s: float) -> bool:
    """Let go of a running turn for a while; the sweep rings for it then."""
    return _let_go(connection, fence, not_before=now(delay_s), rung_at=None, rings=0)


def _let_go(connection: Connection, fence: Fence, **values: object) -> bool:
    let_go = (
        update(Turn)
        .where(
            Turn.id == fence.turn_id,
            Turn.attempt == fence.attempt,
            Turn.status == TurnStatus.RUNNING,
        )
        .values(lease_owner=None, lease_until=None, **values)
        .returning(Turn.id)
    )
    return connection.execute(let_go).one_or_none() is not None


def take_due_doorbells(
    connection: Connection,
    *,
    limit: int,
    is_queue_empty: bool,
    with_lapsed: bool,
) -> list[Doorbell]:
    """Mark turns that may be claimed and whose doorbell is due as rung, and return them.

    with_lapsed: whether turns with a lapsed lease count; not right after the database was away.
    """
    is_due = is_bell_due(Turn.rung_at, Turn.rings, is_queue_empty=is_queue_empty)
    condition = and_(is_claimable(), is_due)
    if not with_lapsed:
        condition = and_(condition, Turn.lease_until.is_(None))
    due = (
        select(Turn.id)
        .where(condition)
        .order_by(Turn.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    ids = list(connection.execute(due).scalars())
    if not ids:
        return []
    rung = (
        update(Turn)
        .where(Turn.id.in_(ids))
        .values(rung_at=now(), rings=Turn.rings + 1)
        .returning(Turn.id, Turn.conversation_id, Turn.attempt)
    )
    return [
        Doorbell(
            turn_id=TurnId(row.id),
            conversation_id=ConversationId(row.conversation_id),
            attempt=row.attempt,
        )
        for row in connection.execute(rung)
    ]


def is_bell_due(
    rung_at: InstrumentedAttribute[datetime | None],
    rings: InstrumentedAttribute[int],
    *,
    is_queue_empty: bool,
) -> ColumnElement[bool]:
    """Say that a row was rung so long ago, or never, that it is time to ring for it again."""
    pause_s = case(
        *((rings <= count, seconds) for count, seconds in enumerate(RING_AGAIN_S, start=1)),
        else_=RING_AGAIN_S[-1],
    )
    due_at = now(-RING_AGAIN_IF_EMPTY_S) if is_queue_empty else now(-pause_s)
    return or_(rung_at.is_(None), rung_at < due_at)


def find_doomed(connection: Connection, *, limit: int, with_lapsed: bool) -> list[Doomed]:
    """Return turns that nobody holds and that were cancelled or are past their deadline."""
    is_asked = Turn.cancel_requested_at.is_not(None)
    is_late = Turn.deadline_at < now()
    condition = is_unheld() if with_lapsed else Turn.lease_until.is_(None)
    query = (
        select(Turn.id, is_asked.label("is_asked"), is_late.label("is_late"))
        .where(Turn.status.in_(OPEN_STATUSES), condition, or_(is_asked, is_late))
        .limit(limit)
    )
    return [
        Doomed(
            turn_id=TurnId(row.id),
            is_cancel_requested=bool(row.is_asked),
            is_past_deadline=bool(row.is_late),
        )
        for row in connection.execute(query)
    ]
