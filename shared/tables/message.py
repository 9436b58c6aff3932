"""Table `messages`: user inputs, committed injections and final answers, densely numbered."""

from datetime import datetime

from sqlalchemy import ForeignKey, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from shared.attachment import Attachment
from shared.tables.base import AttachmentList, Base, UtcTime


class Message(Base):
    """One message of a conversation. Tool rounds live in `journal` and `tool_calls`."""

    __tablename__ = "messages"
    __table_args__ = (UniqueConstraint("conversation_id", "position"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    conversation_id: Mapped[str] = mapped_column(
        ForeignKey("conversations.id", ondelete="CASCADE"),
    )
    # 1, 2, 3 … without a gap within the conversation
    position: Mapped[int]
    # user or assistant
    role: Mapped[str] = mapped_column(String(16))
    # input, injection, answer or note (an assistant note after a turn without an answer)
    kind: Mapped[str] = mapped_column(String(16))
    content: Mapped[str] = mapped_column(Text)
    # Images of a user's input, in order after the text.
    attachments: Mapped[tuple[Attachment, ...]] = mapped_column(
        AttachmentList,
        server_default=text("'[]'"),
    )
    turn_id: Mapped[str] = mapped_column(ForeignKey("turns.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[datetime] = mapped_column(UtcTime)
