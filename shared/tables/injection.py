"""Table `injections`: messages that arrived for a turn while it was open."""

from datetime import datetime

from sqlalchemy import ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from shared.tables.base import Base, UtcTime


class Injection(Base):
    """One injected message; its state only moves forward: accepted → committed | returned."""

    __tablename__ = "injections"
    __table_args__ = (
        UniqueConstraint("turn_id", "seq"),
        UniqueConstraint("turn_id", "idempotency_key"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    turn_id: Mapped[str] = mapped_column(ForeignKey("turns.id", ondelete="CASCADE"))
    # 1, 2, 3 … in the order of acceptance
    seq: Mapped[int]
    content: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(16))
    idempotency_key: Mapped[str | None] = mapped_column(String(255))
    idempotency_hash: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    # When it was committed or returned.
    settled_at: Mapped[datetime | None] = mapped_column(UtcTime)
