"""What a turn's input and its message know of an image: everything but its bytes."""

from dataclasses import dataclass

from shared.ids import FileId


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A stored file that belongs to a message."""

    file_id: FileId
    # As sniffed when the file was stored.
    mime_type: str
