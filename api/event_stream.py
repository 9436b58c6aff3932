"""A turn's events as an HTTP response."""

import asyncio

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.feed import Feeds
from api.reading import Reading
from api.sse import HEADERS, KEEP_ALIVE_S, MEDIA_TYPE, PING

# How long a dropped client may take to accept the end of its stream.
FAREWELL_S = 10.0


class EventStreamResponse(Response):
    """Sends what a reading gives until it is over or the client hangs up."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        feeds: Feeds,
        reading: Reading,
        *,
        headers: dict[str, str] | None = None,
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers(HEADERS | (headers or {}))
        self._feeds = feeds
        self._reading = reading
        self._keep_alive_s = keep_alive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        del scope
        with self._feeds.attach(self._reading.turn_id, self._reading):
            sender = asyncio.create_task(self._send_events(send))
            siblings = {
                sender,
                asyncio.create_task(_wait_for_disconnect(receive)),
                asyncio.create_task(self._wait_for_farewell()),
            }
            try:
                await asyncio.wait(siblings, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in siblings:
                    task.cancel()
                await asyncio.wait(siblings)
        if not sender.cancelled():
            sender.result()

    async def _send_events(self, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            },
        )
        while not self._reading.is_over:
            frames = await self._reading.take(patience_s=self._keep_alive_s)
            if frames:
                await _send_body(send, b"".join(frame.payload for frame in frames))
            elif not self._reading.is_over:
                await _send_body(send, PING)
        await _send_body(send, b"", is_last=True)

    async def _wait_for_farewell(self) -> None:
        # The sender of a dropped client waits for room in the socket that may never come.
        await self._reading.is_dropped.wait()
        await asyncio.sleep(FAREWELL_S)


async def _send_body(send: Send, body: bytes, *, is_last: bool = False) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": not is_last})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
