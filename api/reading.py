"""One client's way through a turn's events: what is stored, then what comes, to the end.

Every event after the client's last one is given once and in order. The stream holds whatever
was published, so a gap in what is heard is closed by reading the stream again.
"""

import asyncio
from collections import deque

import structlog

from api.feed import Feeds, revive
from api.sse import Frame
from shared.database import StorageError
from shared.errors import NotFoundError, UnavailableError
from shared.event_log import READ_BATCH, START, EventId, StoredEvent
from shared.event_writer import DELIVERY_ERRORS
from shared.events import Event
from shared.ids import TurnId
from shared.repositories import turns
from shared.snapshot import TurnPicture, read_picture, terminal_event
from shared.turn_state import OPEN_STATUSES

log = structlog.get_logger()

# Events that wait for one client; at one every 30 ms this is half a minute of an answer.
MAX_WAITING = 1_000
# Above every sequence number: what comes after it is the next epoch.
LAST_SEQ = 10**18 - 1


class Reading:
    """A listener that is asked for events with `take`, by one task, while it is attached.

    last: id of the last event the client has.
    """

    def __init__(self, feeds: Feeds, turn_id: TurnId, last: EventId = START) -> None:
        self.turn_id = turn_id
        # No more events will come on this connection.
        self.is_over = False
        # The client was too slow; it can resume.
        self.is_dropped = asyncio.Event()
        self._feeds = feeds
        self._last = last
        self._waiting: deque[Frame] = deque()
        self._wake = asyncio.Event()
        self._must_read = True
        self._has_ended = False

    def hear(self, frame: Frame) -> None:
        """Queue an event; a client that holds too many unread ones is dropped."""
        if self.is_over:
            return
        if len(self._waiting) >= MAX_WAITING:
            log.info("slow_reader_dropped", turn_id=self.turn_id)
            self.is_dropped.set()
            self.close()
            return
        self._waiting.append(frame)
        self._wake.set()

    def catch_up(self) -> None:
        """Read the stream before anything else."""
        self._must_read = True
        self._wake.set()

    def end(self) -> None:
        """Read the stream a last time; what it lacks comes from the database."""
        self._has_ended = True
        self.catch_up()

    def close(self) -> None:
        """Give nothing more."""
        self.is_over = True
        self._waiting.clear()
        self._wake.set()

    async def take(self, *, patience_s: float) -> list[Frame]:
        """Return the next events, at least one.

        Empty if there was none within patience_s, or if the reading is over.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        while not self.is_over:
            frames = await self._take_now()
            if frames or self.is_over:
                return frames
            try:
                async with asyncio.timeout_at(deadline):
                    await self._wake.wait()
            except TimeoutError:
                return []
        return []

    async def _take_now(self) -> list[Frame]:
        self._wake.clear()
        if not self._must_read:
            frames = self._take_heard()
            if frames or not self._must_read:
                return frames
        frames = await self._read()
        if not frames and self._has_ended and not self.is_over:
            frames = await self._read_end()
        return self._accept(frames)

    def _take_heard(self) -> list[Frame]:
        frames: list[Frame] = []
        last = self._last
        while self._waiting:
            frame = self._waiting.popleft()
            if frame.id <= last:
                continue
            if not last.is_followed_by(frame.id):
                # All that was heard is in the stream as well.
                self._waiting.clear()
                self.catch_up()
                break
            frames.append(frame)
            last = frame.id
        return self._accept(frames)

    async def _read(self) -> list[Frame]:
        """Return stored events after the last one; none if the stream cannot be read now."""
        self._must_read = False
        try:
            stored = await self._feeds.streams.log.read(self.turn_id, self._last)
        except DELIVERY_ERRORS as error:
            # Tried again when the channel is subscribed anew, and at the next check.
            log.warning("stream_not_read", turn_id=self.turn_id, error=type(error).__name__)
            return []
        if stored and (len(stored) == READ_BATCH or self._has_ended):
            self._must_read = True
        return [Frame(event) for event in stored]

    async def _read_end(self) -> list[Frame]:
        """Return the end of an ended turn as the database knows it."""
        try:
            picture = await self._feeds.database.read(
                lambda connection: read_picture(connection, self.turn_id),
            )
        except StorageError as error:
            log.warning("end_not_read", turn_id=self.turn_id, error=type(error).__name__)
            return []
        frames = end_frames(picture) if picture is not None else []
        missing = [frame for frame in frames if frame.id > self._last]
        if not missing:
            self.close()
        return missing

    def _accept(self, frames: list[Frame]) -> list[Frame]:
        """Note the events as given, up to the terminal one."""
        if self.is_over:
            return []
        for index, frame in enumerate(frames):
            self._last = frame.id
            if frame.is_terminal:
                self.close()
                return frames[: index + 1]
        return frames


def end_frames(picture: TurnPicture) -> list[Frame]:
    """Return the snapshot and the terminal event of an ended turn, in an epoch of their own."""
    last = terminal_event(picture.turn)
    if last is None:
        return []
    turn_id, epoch = picture.turn.id, picture.turn.stream_epoch + 1
    events: tuple[Event, ...] = (picture.snapshot, last)
    return [
        Frame(StoredEvent(EventId(epoch, seq), event.name, event.encode(turn_id)))
        for seq, event in enumerate(events)
    ]


async def begin_reading(feeds: Feeds, turn_id: TurnId, after: EventId) -> Reading | None:
    """Find out where a client goes on that has all events up to `after`.

    Returns None if it has the turn's last event. Raises NotFoundError for an unknown turn,
    UnavailableError if the turn is open and its stream cannot be reached.
    """
    turn = await feeds.database.read(lambda connection: turns.get_turn(connection, turn_id))
    if turn is None:
        raise NotFoundError(f"There is no turn {turn_id}: check the id")
    if turn.status in OPEN_STATUSES:
        return Reading(feeds, turn_id, await _find_open(feeds, turn_id, after))
    if after >= EventId(turn.stream_epoch + 1, 1) or await _has_terminal(feeds, turn_id, after):
        return None
    reading = Reading(feeds, turn_id, after)
    reading.end()
    return reading


async def _find_open(feeds: Feeds, turn_id: TurnId, after: EventId) -> EventId:
    """Return the position to read an open turn from; its stream is there afterwards."""
    try:
        await revive(feeds.streams, turn_id)
        if after == START:
            return START
        last = await feeds.streams.log.read_last(turn_id)
    except DELIVERY_ERRORS as error:
        raise UnavailableError(
            "The events cannot be reached now: try again in a moment with the same Last-Event-ID",
        ) from error
    if last is not None and after > last.id:
        return EventId(last.id.epoch - 1, LAST_SEQ)  # an id that was never given, or was lost
    return after


async def _has_terminal(feeds: Feeds, turn_id: TurnId, after: EventId) -> bool:
    if after == START:
        return False
    try:
        last = await feeds.streams.log.read_last(turn_id)
    except DELIVERY_ERRORS:
        return False  # the database has the end
    return last is not None and Frame(last).is_terminal and after >= last.id
