"""Table `plan_steps`: the steps of planned turns, each claimed and fenced like a turn."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from shared.tables.base import Base, Json, UtcTime

_OPEN = text("state IN ('pending', 'ready', 'running', 'waiting')")


class PlanStep(Base):
    """One step of one round's plan."""

    __tablename__ = "plan_steps"
    __table_args__ = (
        # What the sweep looks through, and whoever asks whether a turn's steps have ended.
        Index("ix_plan_steps_open", "turn_id", postgresql_where=_OPEN, sqlite_where=_OPEN),
    )

    turn_id: Mapped[str] = mapped_column(
        ForeignKey("turns.id", ondelete="CASCADE"), primary_key=True
    )
    # The plan that it belongs to, counted from 1.
    round: Mapped[int] = mapped_column(primary_key=True)
    step_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    # Its place in the plan, counted from 1.
    seq: Mapped[int]
    task: Mapped[str] = mapped_column(Text)
    # Ids of steps of the same round.
    dependencies: Mapped[list[str]] = mapped_column(Json)
    tool_hint: Mapped[str | None] = mapped_column(Text)
    model_hint: Mapped[str | None] = mapped_column(Text)
    # The step of an earlier round whose result was taken.
    reuse: Mapped[str | None] = mapped_column(String(64))
    # pending, ready, running, waiting, completed, failed or skipped
    state: Mapped[str] = mapped_column(String(16))
    # How often it was claimed; the fence.
    attempt: Mapped[int] = mapped_column(server_default="0")
    # Claims that followed a lapsed lease.
    crashes: Mapped[int] = mapped_column(server_default="0")
    lease_owner: Mapped[str | None] = mapped_column(Text)
    # NULL on a running step: it was let go of and may be claimed again.
    lease_until: Mapped[datetime | None] = mapped_column(UtcTime)
    # When its task was last sent for the present state, and how often.
    rung_at: Mapped[datetime | None] = mapped_column(UtcTime)
    rings: Mapped[int] = mapped_column(server_default="0")
    # Of a completed step.
    result: Mapped[str | None] = mapped_column(Text)
    # Why it failed, or by which step it was blocked.
    error: Mapped[str | None] = mapped_column(Text)
    started_at: Mapped[datetime | None] = mapped_column(UtcTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcTime)
