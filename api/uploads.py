"""Images on their way in: bytes become stored files, and an input's images its attachments."""

import contextlib
import hashlib
from collections.abc import Sequence

from sqlalchemy import Connection

from api.images import TYPES, decode_data_url, sniff_type
from api.schemas import ImagePart, ImageUrlPart
from shared.attachment import Attachment
from shared.errors import InvalidInputError, NotFoundError
from shared.file_store import FileStore, FileStoreError
from shared.ids import FileId, new_file_id
from shared.repositories import files
from shared.repositories.files import NewFile

# An image of an input: stored just now and without a row yet, or known by its id.
Image = NewFile | FileId


async def store_file(store: FileStore, content: bytes) -> NewFile:
    """Store an image's bytes; its row is the caller's to write.

    Raises InvalidInputError if it is no image, FileStoreError.
    """
    mime_type = sniff_type(content)
    if mime_type is None:
        raise InvalidInputError(f"This is no image of a type that models take: send {TYPES}")
    file = NewFile(
        id=new_file_id(),
        mime_type=mime_type,
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    await store.write(file.id, content)
    return file


async def store_images(
    store: FileStore,
    parts: Sequence[ImagePart],
    *,
    max_bytes: int,
) -> list[Image]:
    """Store the data URLs of an input; what is not accepted is to be removed again.

    max_bytes: most bytes of one image.
    Raises InvalidInputError before anything is stored, FileStoreError.
    """
    contents = [
        decode_data_url(part.image_url.url) if isinstance(part, ImageUrlPart) else part
        for part in parts
    ]
    for content in contents:
        if isinstance(content, bytes) and len(content) > max_bytes:
            raise InvalidInputError(
                f"An image has {len(content)} bytes and may have {max_bytes}: send a smaller one",
            )
    return [
        await store_file(store, content)
        if isinstance(content, bytes)
        else FileId(content.image_file.file_id)
        for content in contents
    ]


async def remove_images(store: FileStore, images: Sequence[Image]) -> None:
    """Remove what was stored for an input that was not accepted, as far as possible."""
    for file in new_files(images):
        with contextlib.suppress(FileStoreError):  # bytes without a row do no harm
            await store.remove(file.id)


def new_files(images: Sequence[Image]) -> list[NewFile]:
    """Return the images that have no row yet."""
    return [image for image in images if isinstance(image, NewFile)]


def find_attachments(
    connection: Connection,
    images: Sequence[Image],
) -> tuple[Attachment, ...]:
    """Return the images as a turn keeps them. Raises NotFoundError for an unknown id."""
    known = files.get_mime_types(
        connection, {image for image in images if not isinstance(image, NewFile)}
    )
    return tuple(_attach(image, known) for image in images)


def _attach(image: Image, known: dict[FileId, str]) -> Attachment:
    if isinstance(image, NewFile):
        return Attachment(file_id=image.id, mime_type=image.mime_type)
    if image not in known:
        raise NotFoundError(f"There is no file {image}: upload the image to /v1/files first")
    return Attachment(file_id=image, mime_type=known[image])
