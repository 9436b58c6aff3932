"""A strict reader of event streams: whatever could trouble a client is a violation."""

import re
from dataclasses import dataclass
from typing import Any

import orjson

from shared.event_log import EventId
from shared.events import TERMINAL_NAMES, Snapshot

FIELDS = ("id", "event", "data")
FIELD_LINE = re.compile(r"(\w+): (.*)", re.DOTALL)


class ProtocolViolationError(AssertionError):
    """The stream broke a rule of server-sent events, or one of ours."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event; `data` is its JSON object."""

    id: str
    event: str
    data: dict[str, Any]

    @property
    def is_terminal(self) -> bool:
        """Whether the stream ends with it."""
        return self.event in TERMINAL_NAMES


class SseParser:
    """Turns the bytes of one connection into events. Raises ProtocolViolationError.

    Each event has exactly one `id`, `event` and `data` line, comments stand between events and
    make no empty event, ids rise without a gap (only a snapshot may skip), an epoch begins
    with a snapshot, all events are of one turn, and nothing follows a terminal event.

    after: id of the last event the reader has; None for a reader that has none, which is
    given a snapshot first.
    """

    def __init__(self, after: str | None = None) -> None:
        self.comments = 0
        self._last = None if after is None else EventId.parse(after)
        self._is_over = False
        self._turn_id: str | None = None
        self._rest = b""
        self._fields: dict[str, str] = {}
        self._follows_comment = False

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Take bytes as they came and return the events they complete."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = (self._take_line(line.removesuffix(b"\r").decode()) for line in lines)
        return [event for event in events if event is not None]

    def close(self) -> None:
        """Check that the server did not end the stream inside an event."""
        if self._rest or self._fields:
            raise ProtocolViolationError(f"the stream ended inside an event: {self._fields}")

    def _take_line(self, line: str) -> ServerEvent | None:
        if line == "":
            return self._end_event()
        if line.startswith(":"):
            if self._fields:
                raise ProtocolViolationError(f"comment {line!r} inside event {self._fields}")
            self.comments += 1
            self._follows_comment = True
            return None
        self._take_field(line)
        return None

    def _take_field(self, line: str) -> None:
        match = FIELD_LINE.fullmatch(line)
        if match is None or match[1] not in FIELDS or "\r" in line:
            raise ProtocolViolationError(f"not a line of an event: {line!r}")
        if match[1] in self._fields:
            raise ProtocolViolationError(f"two {match[1]!r} lines in one event: {line!r}")
        self._fields[match[1]] = match[2]

    def _end_event(self) -> ServerEvent:
        fields, self._fields = self._fields, {}
        was_comment, self._follows_comment = self._follows_comment, False
        if not fields:
            cause = "a comment with a blank line after it" if was_comment else "a blank line"
            raise ProtocolViolationError(f"{cause} makes an empty event")
        missing = [name for name in FIELDS if name not in fields]
        if missing:
            raise ProtocolViolationError(f"an event without {missing}: {fields}")
        event = ServerEvent(fields["id"], fields["event"], _parse_data(fields["data"]))
        self._check_turn(event)
        self._check_order(event)
        return event

    def _check_turn(self, event: ServerEvent) -> None:
        turn_id = event.data.get("turn_id")
        if not isinstance(turn_id, str) or self._turn_id not in (None, turn_id):
            raise ProtocolViolationError(f"not an event of turn {self._turn_id}: {event}")
        self._turn_id = turn_id

    def _check_order(self, event: ServerEvent) -> None:
        if re.fullmatch(r"\d+-\d+", event.id) is None:
            raise ProtocolViolationError(f"not an id: {event}")
        if self._is_over:
            raise ProtocolViolationError(f"an event after the terminal one: {event}")
        self._is_over = event.is_terminal
        last, self._last = self._last, EventId.parse(event.id)
        if last is not None and self._last <= last:
            raise ProtocolViolationError(f"{event.id} does not come after {last}: {event}")
        if event.event == Snapshot.name:
            return
        is_next = last is not None and (last.epoch, last.seq + 1) == self._last
        if not is_next:
            raise ProtocolViolationError(f"a gap between {last} and {event.id}: {event}")


def _parse_data(text: str) -> dict[str, Any]:
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ProtocolViolationError(f"data is not JSON: {text!r}") from error
    if not isinstance(data, dict):
        raise ProtocolViolationError(f"data is not an object: {text!r}")
    return data
