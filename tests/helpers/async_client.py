"""The few calls that load tests make, for hundreds of them at once on one event loop."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Self

import aiohttp

from tests.helpers.sse import ServerEvent, SseParser

Json = dict[str, Any]

# Longest silence on a connection; keep-alive comments come every 15 s.
READ_TIMEOUT_S = 60.0
# As a browser does, a little later than at once.
RECONNECT_S = 0.1


class AsyncTurnmillClient:
    """Many callers of the API in one. A status of 400 or more raises ClientResponseError."""

    def __init__(self, base_url: str) -> None:
        self._session = aiohttp.ClientSession(
            base_url,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_read=READ_TIMEOUT_S),
            raise_for_status=True,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def post_turn(self, text: str, **fields: object) -> Json:
        """Post a turn and return it."""
        return await self._call("POST", "/v1/turns", {"input": text, **fields})

    async def get_turn(self, turn_id: str, *, wait_s: float | None = None) -> Json:
        """Return a turn. wait_s: hold the answer until the turn has ended or so long."""
        query = "" if wait_s is None else f"?wait={wait_s:g}"
        return await self._call("GET", f"/v1/turns/{turn_id}{query}")

    async def messages(self, conversation_id: str) -> list[Json]:
        """Return the first page of a conversation's messages."""
        page = await self._call("GET", f"/v1/conversations/{conversation_id}/messages")
        items: list[Json] = page["items"]
        return items

    async def inject(self, turn_id: str, content: str, **fields: object) -> Json:
        """Send a message to a running turn."""
        return await self._call(
            "POST", f"/v1/turns/{turn_id}/inject", {"content": content} | fields
        )

    async def stream_turn(self, text: str, **fields: object) -> AsyncGenerator[ServerEvent]:
        """Post a turn and yield its events to the end of the stream."""
        body = {"input": text, **fields}
        async for event in self._stream("POST", "/v1/turns", SseParser(), {}, body):
            yield event

    async def events(
        self,
        turn_id: str,
        last_event_id: str | None = None,
    ) -> AsyncGenerator[ServerEvent]:
        """Yield a turn's events, from the start or after an id, to the end of the stream."""
        headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        path = f"/v1/turns/{turn_id}/events"
        async for event in self._stream("GET", path, SseParser(last_event_id), headers):
            yield event

    async def follow(self, turn_id: str, seen: list[ServerEvent], *, timeout_s: float) -> None:
        """Add a turn's events to seen up to the terminal one, reconnecting as often as needed.

        Raises TimeoutError if there is none within timeout_s.
        """
        async with asyncio.timeout(timeout_s):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async for event in self.events(turn_id, seen[-1].id if seen else None):
                        seen.append(event)  # noqa: PERF401 - kept if the stream breaks
                if seen and seen[-1].is_terminal:
                    return
                await asyncio.sleep(RECONNECT_S)

    async def _call(self, method: str, path: str, body: Json | None = None) -> Json:
        async with self._session.request(method, path, json=body) as response:
            answer: Json = await response.json()
            return answer

    async def _stream(
        self,
        method: str,
        path: str,
        parser: SseParser,
        headers: dict[str, str],
        body: Json | None = None,
    ) -> AsyncGenerator[ServerEvent]:
        headers = {"Accept": "text/event-stream"} | headers
        async with self._session.request(method, path, headers=headers, json=body) as response:
            async for chunk in response.content.iter_any():
                for event in parser.feed(chunk):
                    yield event
            parser.close()
