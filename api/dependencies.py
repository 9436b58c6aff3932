"""What routes are given: the parts of the process, and checked pieces of the request."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Path, Query, Request
from redis.asyncio import Redis

from api.background import Background
from api.feed import Feeds
from shared.broker import Doorbell
from shared.database import Database
from shared.errors import InvalidInputError, NotFoundError
from shared.event_log import START, EventId
from shared.event_writer import EventStreams
from shared.file_store import FileStore
from shared.ids import ConversationId, FileId, TurnId
from shared.settings import Settings

_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of an API process."""

    settings: Settings
    database: Database
    files: FileStore
    redis: Redis
    streams: EventStreams
    feeds: Feeds
    doorbell: Doorbell
    background: Background

    def check_length(self, field: str, text: str) -> None:
        """Raise InvalidInputError if a text is longer than the settings allow."""
        limit = self.settings.max_input_chars
        if len(text) > limit:
            raise InvalidInputError(
                f"{field} has {len(text)} characters and may have {limit}: send less",
            )

    def check_images(self, count: int) -> None:
        """Raise InvalidInputError if an input has more images than the settings allow."""
        limit = self.settings.max_images
        if count > limit:
            raise InvalidInputError(f"input has {count} images and may have {limit}: send fewer")


def _parts(request: Request) -> Parts:
    parts = request.app.state.parts
    if not isinstance(parts, Parts):
        raise TypeError("the application has not started")
    return parts


def _turn_id(turn_id: Annotated[str, Path()]) -> TurnId:
    if _ID.fullmatch(turn_id) is None:
        raise NotFoundError("There is no such turn: check the id")
    return TurnId(turn_id)


def _conversation_id(conversation_id: Annotated[str, Path()]) -> ConversationId:
    if _ID.fullmatch(conversation_id) is None:
        raise NotFoundError("There is no such conversation: check the id")
    return ConversationId(conversation_id)


def _file_id(file_id: Annotated[str, Path()]) -> FileId:
    if _ID.fullmatch(file_id) is None:
        raise NotFoundError("There is no such file: check the id")
    return FileId(file_id)


def _event_position(
    last_event_id: Annotated[str | None, Header()] = None,
    after: Annotated[str | None, Query(description="As the header Last-Event-ID.")] = None,
) -> EventId:
    # A browser that reconnects sends the header along with the query it began with.
    given = last_event_id or after
    return EventId.parse(given) if given else START


def check_number(name: str) -> Callable[[str | None], int]:
    """Return a parser of the cursor of a numbered list."""

    def parse(after: Annotated[str | None, Query()] = None) -> int:
        if after is None:
            return 0
        if re.fullmatch(r"\d{1,9}", after, re.ASCII) is None:
            raise InvalidInputError(f"after must be the `next` of a list of {name}")
        return int(after)

    return parse


PartsOf = Annotated[Parts, Depends(_parts)]
TurnIdOf = Annotated[TurnId, Depends(_turn_id)]
ConversationIdOf = Annotated[ConversationId, Depends(_conversation_id)]
FileIdOf = Annotated[FileId, Depends(_file_id)]
PositionOf = Annotated[EventId, Depends(_event_position)]
LimitOf = Annotated[int, Query(ge=1, le=200)]
IdempotencyKeyOf = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x20-\x7e]+$",
        description="Repeating a request with the same key does nothing twice.",
    ),
]
