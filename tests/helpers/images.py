"""Small true images."""

import base64
import struct
import zlib


def make_png(colour: bytes = b"\x00\x80\xff", *, padding: int = 0) -> bytes:
    """Return a PNG of one pixel. colour: three bytes. padding: bytes of text to make it larger."""
    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", header),
            _chunk(b"tEXt", b"Comment\0" + b"x" * padding),
            _chunk(b"IDAT", zlib.compress(b"\0" + colour)),
            _chunk(b"IEND", b""),
        ],
    )


def data_url(content: bytes, mime_type: str = "image/png") -> str:
    """Return the data URL of an image."""
    return f"data:{mime_type};base64,{base64.b64encode(content).decode()}"


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)
