"""Images of messages: known by their files until a request goes out, data URLs in it.

A conversation may hold hundreds of megabytes of images, so bytes are read for one request at a
time. A file gives the same data URL each time, as prompt caches want it.
"""

import base64
from collections.abc import Sequence
from dataclasses import replace

import structlog

from shared.attachment import Attachment
from shared.errors import TurnmillError
from shared.file_store import FileStore
from workers.context.messages import ImagePart, Message, Part, StoredImage, TextPart
from workers.model.values import ModelRequest

log = structlog.get_logger()


def attach(text: str, attachments: Sequence[Attachment]) -> str | tuple[Part, ...]:
    """Return a message's content: the text alone, or parts with the images after it."""
    if not attachments:
        return text
    images = [StoredImage(file_id=item.file_id, mime_type=item.mime_type) for item in attachments]
    return (TextPart(text=text), *images) if text else tuple(images)


async def load_images(request: ModelRequest, files: FileStore) -> ModelRequest:
    """Return the request with its images' bytes; images that cannot be read stay as they are."""
    messages = [await _load_message(message, files) for message in request.messages]
    return replace(request, messages=tuple(messages))


async def _load_message(message: Message, files: FileStore) -> Message:
    if message.content is None or isinstance(message.content, str):
        return message
    parts = [await _load_part(part, files) for part in message.content]
    return replace(message, content=tuple(parts))


async def _load_part(part: Part, files: FileStore) -> Part:
    if not isinstance(part, StoredImage):
        return part
    try:
        content = await files.read(part.file_id)
    except TurnmillError as error:
        log.warning("image_not_read", file_id=part.file_id, code=error.code)
        return part
    return ImagePart(url=f"data:{part.mime_type};base64,{base64.b64encode(content).decode()}")
