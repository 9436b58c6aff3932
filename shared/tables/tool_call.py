"""Table `tool_calls`: every call a model asked for, its state and its result."""

from datetime import datetime

from sqlalchemy import ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from shared.tables.base import Base, UtcTime


class ToolCall(Base):
    """One tool call. Its id is the idempotency key the tool can see."""

    __tablename__ = "tool_calls"
    __table_args__ = (UniqueConstraint("turn_id", "loop", "iteration", "seq"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    turn_id: Mapped[str] = mapped_column(ForeignKey("turns.id", ondelete="CASCADE"))
    loop: Mapped[str] = mapped_column(String(64))
    # The model call that asked for it, counted from 1.
    iteration: Mapped[int]
    # Its place among the calls of that response, counted from 1.
    seq: Mapped[int]
    # The id the model gave it.
    call_id: Mapped[str] = mapped_column(Text)
    name: Mapped[str] = mapped_column(Text)
    # Raw JSON text as the model sent it.
    arguments: Mapped[str] = mapped_column(Text)
    # ready, running, done or unknown (started by a worker that was lost)
    state: Mapped[str] = mapped_column(String(16))
    # The turn's attempt that started it last.
    attempt: Mapped[int]
    result: Mapped[str | None] = mapped_column(Text)
    is_error: Mapped[bool]
    elapsed_s: Mapped[float | None]
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcTime)
