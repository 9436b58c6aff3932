"""Table `turns`: one user input and the state of all that is done to answer it."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from shared.attachment import Attachment
from shared.tables.base import AttachmentList, Base, Json, UtcTime

_ACTIVE = text("status IN ('running', 'waiting')")
_OPEN = text("status IN ('queued', 'running', 'waiting')")


class Turn(Base):
    """One turn. Every change of its state is one conditional UPDATE."""

    __tablename__ = "turns"
    __table_args__ = (
        UniqueConstraint("conversation_id", "number"),
        # One active turn per conversation, whatever the code believes.
        Index(
            "uq_turns_active_conversation",
            "conversation_id",
            unique=True,
            postgresql_where=_ACTIVE,
            sqlite_where=_ACTIVE,
        ),
        # What the sweep looks through.
        Index("ix_turns_open", "id", postgresql_where=_OPEN, sqlite_where=_OPEN),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    conversation_id: Mapped[str] = mapped_column(
        ForeignKey("conversations.id", ondelete="CASCADE"),
    )
    # Order within the conversation: the lowest queued number is claimed next.
    number: Mapped[int]
    status: Mapped[str] = mapped_column(String(16))
    # synthesizing once the loop has ended and the answer is being written
    phase: Mapped[str | None] = mapped_column(String(32))
    mode: Mapped[str] = mapped_column(String(16))
    input: Mapped[str] = mapped_column(Text)
    # Images of the input, in order after the text.
    attachments: Mapped[tuple[Attachment, ...]] = mapped_column(
        AttachmentList,
        server_default=text("'[]'"),
    )
    instructions: Mapped[str | None] = mapped_column(Text)
    model: Mapped[str | None] = mapped_column(String(200))
    # Names of the tools offered; NULL offers all.
    tools: Mapped[list[str] | None] = mapped_column(Json)
    metadata_: Mapped[dict[str, object]] = mapped_column("metadata", Json)

    # Position of the input among the messages; NULL until the first claim.
    first_position: Mapped[int | None]
    # Raised by every claim; the fence of every write.
    attempt: Mapped[int]
    # Claims that followed a lapsed lease.
    crashes: Mapped[int]
    # The worker process that holds the lease.
    lease_owner: Mapped[str | None] = mapped_column(String(80))
    # NULL on a running or waiting turn: released, may be claimed once no tool call of it is
    # delegated any more.
    lease_until: Mapped[datetime | None] = mapped_column(UtcTime)
    # Parked until then; NULL: it is not.
    not_before: Mapped[datetime | None] = mapped_column(UtcTime)
    # NULL before the first claim, and while the turn waits for a person.
    deadline_at: Mapped[datetime | None] = mapped_column(UtcTime)
    # Time left until the deadline when the turn began to wait for a person.
    remaining_s: Mapped[float | None]
    # When a doorbell was last rung for the present state, and how often.
    rung_at: Mapped[datetime | None] = mapped_column(UtcTime)
    rings: Mapped[int]
    # Injected messages accepted and not yet committed or returned.
    pending_injections: Mapped[int]
    # Injected messages ever accepted.
    injection_count: Mapped[int]
    cancel_requested_at: Mapped[datetime | None] = mapped_column(UtcTime)
    cancel_by: Mapped[str | None] = mapped_column(String(200))
    cancel_reason: Mapped[str | None] = mapped_column(Text)
    # Epoch of the turn's event stream that is or will be open.
    stream_epoch: Mapped[int]

    answer: Mapped[str | None] = mapped_column(Text)
    usage: Mapped[dict[str, object] | None] = mapped_column(Json)
    iterations: Mapped[int | None]
    compacted: Mapped[bool]
    error: Mapped[dict[str, object] | None] = mapped_column(Json)

    idempotency_key: Mapped[str | None] = mapped_column(String(255), unique=True)
    # SHA-256 of the request that used the key.
    idempotency_hash: Mapped[str | None] = mapped_column(String(64))

    created_at: Mapped[datetime] = mapped_column(UtcTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcTime)
