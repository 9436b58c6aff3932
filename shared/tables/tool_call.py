"""Table `tool_calls`: every call a model asked for, its state and its result."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint, false, text
from sqlalchemy.orm import Mapped, mapped_column

from shared.tables.base import Base, UtcTime

_DELEGATED = text(
    "state = 'waiting_approval' OR (queue IS NOT NULL AND state IN ('ready', 'running'))",
)


class ToolCall(Base):
    """One tool call. Its id is the idempotency key the tool can see."""

    __tablename__ = "tool_calls"
    __table_args__ = (
        UniqueConstraint("turn_id", "loop", "iteration", "seq"),
        # What the sweep looks through.
        Index(
            "ix_tool_calls_delegated",
            "id",
            postgresql_where=_DELEGATED,
            sqlite_where=_DELEGATED,
        ),
    )

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
    # waiting_approval, ready, running, done or unknown (started by a worker that was lost)
    state: Mapped[str] = mapped_column(String(16))
    # How often it was started; the fence of a call that runs as a task of its own.
    attempt: Mapped[int]
    # Celery queue of the task that runs it; NULL: it runs in the loop of the turn's worker.
    queue: Mapped[str | None] = mapped_column(String(16))
    # Whether it may be run again when its outcome is unknown.
    is_repeatable: Mapped[bool] = mapped_column(server_default=false())
    # Time it may take; of a task of its own.
    timeout_s: Mapped[float | None]
    # waiting, approved, refused or expired; NULL: nobody has to approve it.
    approval: Mapped[str | None] = mapped_column(String(16))
    approval_reason: Mapped[str | None] = mapped_column(Text)
    # Until when it may be approved.
    expires_at: Mapped[datetime | None] = mapped_column(UtcTime)
    # Of the tools worker that runs it.
    lease_until: Mapped[datetime | None] = mapped_column(UtcTime)
    # When its task was last sent for the present state, and how often.
    rung_at: Mapped[datetime | None] = mapped_column(UtcTime)
    rings: Mapped[int] = mapped_column(server_default="0")
    result: Mapped[str | None] = mapped_column(Text)
    is_error: Mapped[bool]
    elapsed_s: Mapped[float | None]
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcTime)
