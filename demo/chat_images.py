"""The images of a request: by URL or in a data URL, which is opened as the real API opens it."""

import base64
import binascii
import re

from demo.json_field import JsonField
from demo.refusal import Refusal, invalid_value

REMOTE = ("https://", "http://")
DATA_URL = re.compile(r"data:image/[a-z0-9.+-]+;base64,", re.IGNORECASE)
# How images of the four types begin; what stands for any byte is a dot.
IMAGE = re.compile(rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8[79]a|RIFF....WEBP", re.DOTALL)


def parse_image(field: JsonField) -> str:
    """Return the URL of an image part's `image_url`. Raises Refusal."""
    field.check_keys({"url", "detail"})
    if detail := field.get("detail"):
        detail.choice({"auto", "low", "high"})
    url = field.require("url")
    text = url.filled_text()
    if not text.lower().startswith(REMOTE):
        _check_image(_decode(text, url.path))
    return text


def _decode(url: str, path: str) -> bytes:
    head = DATA_URL.match(url)
    try:
        if head:
            return base64.b64decode(url[head.end() :], validate=True)
    except binascii.Error:
        pass
    raise invalid_value(path, "expected the URL of an image, or a base64-encoded data URL with one")


def _check_image(content: bytes) -> None:
    if not IMAGE.match(content):
        raise Refusal(
            "You uploaded an unsupported image. Please make sure your image has of one the"
            " following formats: ['png', 'jpeg', 'gif', 'webp'].",
            code="invalid_image_format",
        )
