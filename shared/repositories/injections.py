"""Injected messages: accepted while a turn is open, then committed or returned."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, insert, select, update

from shared.clock import now
from shared.database import AnyRow
from shared.ids import InjectionId, TurnId
from shared.tables import Injection, Turn
from shared.turn_state import OPEN_STATUSES, InjectionState

MAX_PENDING = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredInjection:
    """One injected message."""

    id: InjectionId
    turn_id: TurnId
    seq: int
    content: str
    state: InjectionState
    created_at: datetime
    settled_at: datetime | None
    idempotency_hash: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedInjection:
    """An injected message that its turn did not take."""

    injection_id: InjectionId
    content: str


_COLUMNS = (
    Injection.id,
    Injection.turn_id,
    Injection.seq,
    Injection.content,
    Injection.state,
    Injection.created_at,
    Injection.settled_at,
    Injection.idempotency_hash,
)


_ALL = select(*_COLUMNS).where(Injection.turn_id == bindparam("turn")).order_by(Injection.seq)
_ACCEPTED = _ALL.where(Injection.state == InjectionState.ACCEPTED)


def accept_injection(
    connection: Connection,
    turn_id: TurnId,
    *,
    injection_id: InjectionId,
    content: str,
    idempotency_key: str | None = None,
    idempotency_hash: str | None = None,
) -> bool:
    """Take a message for an open turn; once this commits, the server owns it.

    The turn's row is counted up before the message is written: completing a turn tests that
    count, so it sees either the message or a turn that had ended before.
    The caller refuses the calls that wait for approval in the same transaction.
    Returns False if the turn has ended, is unknown, or holds MAX_PENDING unread messages.
    """
    count = (
        update(Turn)
        .where(
            Turn.id == turn_id,
            Turn.status.in_(OPEN_STATUSES),
            Turn.pending_injections < MAX_PENDING,
        )
        .values(
            pending_injections=Turn.pending_injections + 1,
            injection_count=Turn.injection_count + 1,
        )
        .returning(Turn.injection_count)
    )
    seq = connection.execute(count).scalar_one_or_none()
    if seq is None:
        return False
    connection.execute(
        insert(Injection).values(
            id=injection_id,
            turn_id=turn_id,
            seq=seq,
            content=content,
            state=InjectionState.ACCEPTED,
            idempotency_key=idempotency_key,
            idempotency_hash=idempotency_hash,
            created_at=now(),
        ),
    )
    return True


def commit_injections(connection: Connection, turn_id: TurnId) -> list[StoredInjection]:
    """Make the accepted messages of a turn part of it and return them in order.

    The caller holds the turn's row lock.
    """
    found = [_stored(row) for row in connection.execute(_ACCEPTED, {"turn": turn_id})]
    if found:
        _settle(connection, turn_id, InjectionState.COMMITTED)
        none_waits = update(Turn).where(Turn.id == turn_id).values(pending_injections=0)
        connection.execute(none_waits)
    return found


def return_injections(connection: Connection, turn_id: TurnId) -> tuple[ReturnedInjection, ...]:
    """Give the accepted messages of an ended turn back; return them in order."""
    found = tuple(
        ReturnedInjection(injection_id=row.id, content=row.content)
        for row in connection.execute(_ACCEPTED, {"turn": turn_id})
    )
    if found:
        _settle(connection, turn_id, InjectionState.RETURNED)
    return found


def list_injections(connection: Connection, turn_id: TurnId) -> list[StoredInjection]:
    """Return all injected messages of a turn, in the order of acceptance."""
    return [_stored(row) for row in connection.execute(_ALL, {"turn": turn_id})]


def get_injection_by_idempotency_key(
    connection: Connection,
    turn_id: TurnId,
    key: str,
) -> StoredInjection | None:
    """Return the message that was injected with the key, or None."""
    query = select(*_COLUMNS).where(
        Injection.turn_id == turn_id,
        Injection.idempotency_key == key,
    )
    row = connection.execute(query).one_or_none()
    return _stored(row) if row else None


def _settle(connection: Connection, turn_id: TurnId, state: InjectionState) -> None:
    connection.execute(
        update(Injection)
        .where(Injection.turn_id == turn_id, Injection.state == InjectionState.ACCEPTED)
        .values(state=state, settled_at=now()),
    )


def _stored(row: AnyRow) -> StoredInjection:
    fields = row._asdict()
    fields["state"] = InjectionState(fields["state"])
    return StoredInjection(**fields)
