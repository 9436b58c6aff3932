"""The journal of a turn: written only behind its fence."""

from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, insert, select

from shared.clock import now
from shared.ids import TurnId
from shared.tables import JournalEntry
from shared.turn_state import Fence

TURN_LOOP = "turn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of the journal."""

    seq: int
    # response, injections, note, selection, compaction or usage
    kind: str
    data: dict[str, object]


_INSERT_ENTRY = insert(JournalEntry).values(loop=TURN_LOOP, created_at=now())
_ENTRIES = (
    select(JournalEntry.seq, JournalEntry.kind, JournalEntry.data)
    .where(JournalEntry.turn_id == bindparam("turn"), JournalEntry.loop == TURN_LOOP)
    .order_by(JournalEntry.seq)
)


def append_entries(connection: Connection, fence: Fence, entries: list[Entry]) -> None:
    """Append entries in order. The caller holds the turn's row lock behind its fence."""
    for entry in entries:
        connection.execute(
            _INSERT_ENTRY,
            {
                "turn_id": fence.turn_id,
                "seq": entry.seq,
                "attempt": fence.attempt,
                "kind": entry.kind,
                "data": entry.data,
            },
        )


def compaction_event(entry: Entry) -> dict[str, object]:
    """Return the data of the event that told of a journaled compaction."""
    event = entry.data["event"]
    if not isinstance(event, dict):
        raise TypeError("a compaction's entry holds its event")
    return event


def get_entries(connection: Connection, turn_id: TurnId) -> list[Entry]:
    """Return the journal of a turn's own loop, in order."""
    rows = connection.execute(_ENTRIES, {"turn": turn_id})
    return [Entry(seq=row.seq, kind=row.kind, data=row.data) for row in rows]
