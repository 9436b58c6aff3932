"""Types are told by bytes, and data URLs opened strictly."""

import base64

import pytest
from pydantic_core import PydanticCustomError

from api.images import check_image_url, decode_data_url, sniff_type
from tests.helpers.images import data_url, make_png

WEBP = b"RIFF\x24\x00\x00\x00WEBPVP8 "


@pytest.mark.parametrize(
    ("content", "mime_type"),
    [
        (make_png(), "image/png"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF\x00", "image/jpeg"),
        (b"GIF87a\x01\x00", "image/gif"),
        (b"GIF89a\x01\x00", "image/gif"),
        (WEBP, "image/webp"),
        (b"", None),
        (b"\x89PNG", None),
        (b"RIFF\x24\x00\x00\x00WAVEfmt ", None),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", None),
        (b"<html>GIF89a", None),
        (b"BM\x00\x00", None),
    ],
)
def test_type_is_sniffed(content: bytes, mime_type: str | None) -> None:
    assert sniff_type(content) == mime_type


@pytest.mark.parametrize("head", ["data:image/png;base64", "DATA:;BASE64", "data:text/x;base64"])
def test_data_url_is_opened_whatever_it_says_of_its_type(head: str) -> None:
    url = f"{head},{base64.b64encode(WEBP).decode()}"

    assert decode_data_url(url) == WEBP
    assert check_image_url(url) == url


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("https://example.org/cat.png", "upload the image to /v1/files"),
        ("HTTP://example.org/cat.png", "upload the image to /v1/files"),
        ("", "must be a data URL"),
        ("cat.png", "must be a data URL"),
        ("file:///etc/passwd", "must be a data URL"),
        ("data:image/png;base64", "must be a data URL"),
        ("data:image/svg+xml,<svg/>", "must be a data URL"),
        ("data:image/png;base64,iVBORw0KGgo", "must be a data URL"),
        ("data:image/png;base64,iVBO Rw0KGgo=", "must be a data URL"),
        ("data:image/png;base64,%89PNG", "must be a data URL"),
        ("data:image/png;base64,žluť", "must be a data URL"),
        ("data:image/png;base64,", "PNG, JPEG, GIF or WebP"),
        (data_url(b"plain text"), "PNG, JPEG, GIF or WebP"),
    ],
)
def test_other_urls_are_refused_with_what_to_do(url: str, sentence: str) -> None:
    with pytest.raises(PydanticCustomError, match=sentence):
        check_image_url(url)
