"""Table `summaries`: checkpoints of conversations, each standing for all messages before it."""

from datetime import datetime

from sqlalchemy import ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from shared.tables.base import Base, UtcTime


class Summary(Base):
    """One checkpoint. It is gone as soon as a message that it covers is changed or deleted."""

    __tablename__ = "summaries"

    conversation_id: Mapped[str] = mapped_column(
        ForeignKey("conversations.id", ondelete="CASCADE"),
        primary_key=True,
    )
    # Position of the newest message that it stands for.
    until_position: Mapped[int] = mapped_column(primary_key=True)
    # llm or truncate
    method: Mapped[str] = mapped_column(String(16))
    # The summary; "" where messages were left out and there was none before.
    content: Mapped[str] = mapped_column(Text)
    # Size of the content, as it was measured.
    tokens: Mapped[int]
    # The model that wrote it; NULL for a truncation.
    model: Mapped[str | None] = mapped_column(String(200))
    created_at: Mapped[datetime] = mapped_column(UtcTime)
