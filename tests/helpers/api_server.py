"""The API on a real socket in the test's own event loop, and a worker's part played by the test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import httpx2
import uvicorn
from fastapi import FastAPI

from api.app import create_app_with
from api.dependencies import Parts
from shared.event_writer import EventWriter
from shared.events import Answer, Event, Status
from shared.ids import ConversationId, TurnId
from shared.repositories import endings, turns
from shared.repositories.endings import Completion, EndedTurn
from shared.repositories.turns import ClaimedTurn, StreamOwner
from shared.settings import Settings
from shared.turn_end import announce_end
from tests.helpers.sse import ServerEvent, SseParser
from tests.helpers.waiting import wait_until_async

LEASE_S = 60.0
USAGE: dict[str, object] = {"input_tokens": 3, "output_tokens": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """A running API: its parts, and a client of it."""

    parts: Parts
    http: httpx2.AsyncClient

    async def post_turn(self, text: str = "question", **fields: object) -> TurnId:
        """Post a turn and return its id."""
        response = await self.http.post("/v1/turns", json={"input": text} | fields)
        assert response.status_code == httpx2.codes.ACCEPTED, response.text
        return TurnId(response.json()["id"])

    @contextlib.asynccontextmanager
    async def events(self, turn_id: TurnId, after: str | None = None) -> AsyncIterator["Events"]:
        """Open a turn's event stream."""
        headers = {} if after is None else {"Last-Event-ID": after}
        async with self.http.stream(
            "GET",
            f"/v1/turns/{turn_id}/events",
            headers=headers,
        ) as response:
            yield Events(response, after)

    async def read_all(self, turn_id: TurnId, after: str | None = None) -> list[ServerEvent]:
        """Read a turn's events to the end of the stream."""
        async with self.events(turn_id, after) as stream:
            return await stream.read_all()


class Events:
    """The events of one connection."""

    def __init__(self, response: httpx2.Response, after: str | None = None) -> None:
        self.response = response
        self.seen: list[ServerEvent] = []
        self._parser = SseParser(after)
        self._chunks = response.aiter_raw()

    async def read(self, count: int) -> list[ServerEvent]:
        """Read until so many events were seen, and return all that were."""
        while len(self.seen) < count:
            async with asyncio.timeout(20):
                self.seen += self._parser.feed(await anext(self._chunks))
        return self.seen

    async def read_all(self) -> list[ServerEvent]:
        """Read to the end of the stream and return all events."""
        async with asyncio.timeout(20):
            async for chunk in self._chunks:
                self.seen += self._parser.feed(chunk)
        self._parser.close()
        return self.seen


class Worker:
    """A worker's part in one turn, as far as readers can tell."""

    def __init__(self, parts: Parts, claimed: ClaimedTurn) -> None:
        self.claimed = claimed
        self._parts = parts
        self._said = ""
        owner = StreamOwner(epoch=claimed.stream_epoch, attempt=claimed.attempt)
        self.writer = EventWriter(parts.streams, claimed.id, owner, self._restate)

    @classmethod
    async def claim(cls, parts: Parts, turn_id: TurnId) -> "Worker":
        """Claim a turn and say so."""
        claimed = await parts.database.write(
            lambda connection: turns.claim_turn(
                connection,
                turn_id,
                owner="test",
                lease_s=LEASE_S,
                turn_timeout_s=600,
            ),
        )
        assert claimed is not None
        worker = cls(parts, claimed)
        await worker.writer.emit(Status(status="running", attempt=claimed.attempt))
        return worker

    async def say(self, text: str) -> None:
        """Stream a piece of the answer."""
        offset, self._said = len(self._said), self._said + text
        await self.writer.emit(Answer(status="delta", content=text, offset=offset))

    async def complete(self, *, is_announced: bool = True) -> EndedTurn:
        """End the turn with what was said."""
        completion = Completion(answer=self._said, usage=USAGE, iterations=1, compacted=False)
        ended = await self._parts.database.write(
            lambda connection: endings.complete_turn(connection, self.claimed.fence, completion),
        )
        assert ended is not None
        if is_announced:
            await announce_end(
                ended,
                writer=self.writer,
                doorbell=self._parts.doorbell,
            )
        return ended

    @property
    def conversation_id(self) -> ConversationId:
        """The turn's conversation."""
        return self.claimed.conversation_id

    def _restate(self) -> Sequence[Event]:
        return [Answer(status="delta", content=self._said, offset=0)] if self._said else []


@contextlib.asynccontextmanager
async def serve_api(settings: Settings) -> AsyncIterator[Api]:
    """Run the API and give a client of it."""
    app = create_app_with(settings)
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_config=None, ws="none", lifespan="on"),
    )
    task = asyncio.create_task(server.serve())
    try:
        await wait_until_async(
            lambda: server.started or task.done(),
            message="the API has not started",
        )
        if task.done():
            await task
        port = server.servers[0].sockets[0].getsockname()[1]
        async with _client(port) as http:
            yield Api(parts=_parts(app), http=http)
    finally:
        server.should_exit = True
        await task


def _client(port: int) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{port}",
        timeout=30,
        trust_env=False,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=50),
    )


def _parts(app: FastAPI) -> Parts:
    parts = app.state.parts
    assert isinstance(parts, Parts)
    return parts
