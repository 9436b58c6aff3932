"""Table `files`: what was uploaded; the bytes lie in the directory of `shared.file_store`."""

from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from shared.tables.base import Base, UtcTime


class File(Base):
    """One file, written once and never changed."""

    __tablename__ = "files"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    # Sniffed from the bytes, never what the client said.
    mime_type: Mapped[str] = mapped_column(String(100))
    size_bytes: Mapped[int]
    # Of the bytes, in hexadecimal digits.
    sha256: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(UtcTime)
