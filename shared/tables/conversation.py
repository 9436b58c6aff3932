"""Table `conversations`: the durable, ordered history under one id."""

from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from shared.tables.base import Base, Json, UtcTime


class Conversation(Base):
    """One conversation."""

    __tablename__ = "conversations"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    # Turns ever posted; the next turn's number less one.
    turn_count: Mapped[int]
    # Raised by every change to its messages but adding some.
    history_version: Mapped[int] = mapped_column(server_default="0")
    # Names of the tools that were picked for it, in the order in which they came; NULL: none were.
    tools: Mapped[list[str] | None] = mapped_column(Json)
    metadata_: Mapped[dict[str, object]] = mapped_column("metadata", Json)
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    updated_at: Mapped[datetime] = mapped_column(UtcTime, index=True)
