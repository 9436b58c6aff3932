"""What children write: chunks of bytes into lines, and which of these a user should see."""

import json
import re
from dataclasses import dataclass
from typing import Any

# A longer line is cut in pieces: no child can fill our memory.
LONGEST_LINE_BYTES = 64_000

NOTABLE_LEVELS = frozenset({"warning", "error", "critical"})
# Tornado's format, which Flower keeps. Its warnings are about workers that were asked too early.
NOTABLE_TEXT = re.compile(r"^\[[EC] \d{6} ")
HIDDEN_FIELDS = frozenset({"event", "level", "timestamp", "exception"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a child's output."""

    # For people; further lines of a traceback included.
    text: str
    # Worth a look without --verbose.
    is_notable: bool


class LineSplitter:
    """Collects chunks of bytes into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[str]:
        """Return the lines that the chunk completes; an empty chunk ends the last one."""
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        if self._rest and (not chunk or len(self._rest) > LONGEST_LINE_BYTES):
            whole.append(self._rest)
            self._rest = b""
        return [line.decode(errors="replace").rstrip("\r") for line in whole]


def read_line(raw: str) -> Line:
    """Read a line: JSON as our processes log it, else plain text."""
    entry = _parse(raw)
    if entry is None:
        return Line(text=raw, is_notable=NOTABLE_TEXT.match(raw) is not None)
    level = str(entry.get("level", ""))
    fields = [f"{name}={value}" for name, value in entry.items() if name not in HIDDEN_FIELDS]
    text = " ".join([f"{level}:", str(entry["event"]), *fields])
    if entry.get("exception"):
        text += f"\n{entry['exception']}"
    return Line(text=text, is_notable=level in NOTABLE_LEVELS)


def _parse(raw: str) -> dict[str, Any] | None:
    if not raw.startswith("{"):
        return None
    try:
        entry = json.loads(raw)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "event" in entry else None
