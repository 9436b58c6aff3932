"""What an image is: told from its bytes, never from a client's word."""

import base64
import binascii

from pydantic_core import PydanticCustomError

TYPES = "PNG, JPEG, GIF or WebP"
# Types by the bytes they begin with; WebP is told by more than its beginning.
MAGIC = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def sniff_type(content: bytes) -> str | None:
    """Return the MIME type of an image, or None if it is none of the types that models take."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for magic, mime in MAGIC.items() if content.startswith(magic)), None)


def decode_data_url(url: str) -> bytes:
    """Return the bytes in a base64 data URL. Raises ValueError if it is none."""
    head, comma, data = url.partition(",")
    head = head.lower()
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        raise ValueError("not a base64 data URL")
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error


def check_image_url(url: str) -> str:
    """Refuse URLs that hold no image."""
    if url[:8].lower().startswith(("http://", "https://")):
        raise PydanticCustomError(
            "image_url_remote",
            "is not fetched: upload the image to /v1/files, or send it as a data URL",
        )
    try:
        content = decode_data_url(url)
    except ValueError:
        raise PydanticCustomError(
            "image_url_form",
            "must be a data URL with the image in base64: data:image/png;base64,…",
        ) from None
    if sniff_type(content) is None:
        raise PydanticCustomError(
            "image_type", "must hold an image: send {types}", {"types": TYPES}
        )
    return url
