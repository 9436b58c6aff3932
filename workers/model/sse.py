"""Server-sent events as a model's provider sends them: bytes in, the data of whole events out.

Only `data` lines matter here; names, ids, retry times and comments are skipped. Pieces may be cut
anywhere, inside a character or between a carriage return and its line feed.
"""


class SseDecoder:
    """Decodes one stream."""

    def __init__(self) -> None:
        # Pieces of the line that has not ended yet.
        self._pieces: list[bytes] = []
        # Data lines of the event that has not ended yet.
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that this piece ends, in order."""
        self._pieces.append(piece)
        if b"\n" not in piece and b"\r" not in piece:
            return []
        text = b"".join(self._pieces)
        # The other half of this line end may come with the next piece.
        held = b"\r" if text.endswith(b"\r") else b""
        if b"\r" in text:
            text = text.removesuffix(held).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")
        self._pieces = [rest + held]
        return self._read(lines)

    def finish(self) -> list[bytes]:
        """Return the data of a last event without the blank line that ends one."""
        line = b"".join(self._pieces).removesuffix(b"\r")
        self._pieces = []
        return self._read([line, b""])

    def _read(self, lines: list[bytes]) -> list[bytes]:
        events = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events
