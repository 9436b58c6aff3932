"""Files: what is known of them besides their bytes."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Connection, insert, select

from shared.clock import now
from shared.ids import FileId
from shared.tables import File


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """What is written down of a file once its bytes are stored."""

    id: FileId
    mime_type: str
    size_bytes: int
    # Of the bytes, in hexadecimal digits.
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileView:
    """A file as the API shows it."""

    id: FileId
    mime_type: str
    size_bytes: int
    created_at: datetime


def insert_files(connection: Connection, files: Sequence[NewFile]) -> None:
    """Write down files; their bytes are stored already."""
    if files:
        rows = [asdict(file) for file in files]
        connection.execute(insert(File).values(created_at=now()), rows)


def get_file(connection: Connection, file_id: FileId) -> FileView | None:
    """Return the file, or None."""
    query = select(File.id, File.mime_type, File.size_bytes, File.created_at)
    row = connection.execute(query.where(File.id == file_id)).one_or_none()
    return FileView(**row._asdict()) if row else None


def get_mime_types(connection: Connection, file_ids: Collection[FileId]) -> dict[FileId, str]:
    """Return the type of each file that exists."""
    if not file_ids:
        return {}
    rows = connection.execute(select(File.id, File.mime_type).where(File.id.in_(file_ids)))
    return {FileId(row.id): row.mime_type for row in rows}
