"""Framing of server-sent events."""

from dataclasses import dataclass
from functools import cached_property

from shared.event_log import EventId, StoredEvent
from shared.events import TERMINAL_NAMES

MEDIA_TYPE = "text/event-stream"
KEEP_ALIVE_S = 15.0
# One newline: with a blank line after it, some clients take a comment for an empty event.
PING = b": ping\n"
HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}


@dataclass(frozen=True)
class Frame:
    """An event and its bytes, made once and shared by all clients of the turn."""

    event: StoredEvent

    @property
    def id(self) -> EventId:
        """Id of the event."""
        return self.event.id

    @property
    def is_terminal(self) -> bool:
        """Whether the stream ends with the event."""
        return self.event.name in TERMINAL_NAMES

    @cached_property
    def payload(self) -> bytes:
        """The event as it goes over the wire."""
        event = self.event
        return f"id: {event.id}\nevent: {event.name}\ndata: {event.data}\n\n".encode()
