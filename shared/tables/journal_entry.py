"""Table `journal`: the durable record of a turn's progress, from which any worker resumes."""

from datetime import datetime

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from shared.tables.base import Base, Json, UtcTime


class JournalEntry(Base):
    """One entry, appended and never changed."""

    __tablename__ = "journal"

    turn_id: Mapped[str] = mapped_column(
        ForeignKey("turns.id", ondelete="CASCADE"),
        primary_key=True,
    )
    # Which loop of the turn wrote it: `turn` for the turn's own.
    loop: Mapped[str] = mapped_column(String(64), primary_key=True)
    # 1, 2, 3 … within the loop
    seq: Mapped[int] = mapped_column(primary_key=True)
    attempt: Mapped[int]
    # response, injections or compaction
    kind: Mapped[str] = mapped_column(String(16))
    data: Mapped[dict[str, object]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcTime)
