"""A client of the HTTP API for tests; what a caller in another language would write."""

from collections.abc import Callable, Generator, Iterator
from typing import Any, Self

import httpx2

from tests.helpers.sse import ServerEvent, SseParser

Json = dict[str, Any]

EVENT_STREAM = "text/event-stream"
CONNECT_TIMEOUT_S = 5.0
# Longest silence on a connection; keep-alive comments come every 15 s.
READ_TIMEOUT_S = 60.0


class RefusedError(Exception):
    """The API answered with an error; `problem` is the body as it came."""

    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.problem: Json = response.json() if "json" in _content_type(response) else {}
        super().__init__(f"{self.status}: {self.problem or response.text[:500]}")


class EventStream:
    """The events of one connection, read as they come.

    The server has answered when this exists. Iterating ends with the server's end of the stream.
    """

    def __init__(self, response: httpx2.Response, after: str | None) -> None:
        self.status = response.status_code
        self.headers = response.headers
        # What was read so far.
        self.events: list[ServerEvent] = []
        self._response = response
        self._parser = SseParser(after)
        self._after = after
        self._source = self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[ServerEvent]:
        return self._source

    @property
    def last_id(self) -> str | None:
        """Id of the newest event seen, to go on from on another connection."""
        return self.events[-1].id if self.events else self._after

    @property
    def comments(self) -> int:
        """Keep-alive comments seen."""
        return self._parser.comments

    def read_until(self, is_wanted: Callable[[ServerEvent], bool]) -> ServerEvent:
        """Read up to the first wanted event. Raises EOFError if the stream ends before it."""
        for event in self._source:
            if is_wanted(event):
                return event
        raise EOFError(f"the stream ended without the wanted event: {self.events[-5:]}")

    def read_all(self) -> list[ServerEvent]:
        """Read to the end of the stream and return all of its events."""
        for _ in self._source:
            pass
        return self.events

    def close(self) -> None:
        """Hang up."""
        self._source.close()
        self._response.close()

    def _read(self) -> Generator[ServerEvent]:
        for chunk in self._response.iter_raw():
            for event in self._parser.feed(chunk):
                self.events.append(event)
                yield event
        self._parser.close()


class TurnmillClient:
    """One caller of the API. Every method raises RefusedError for an answer of 400 or more."""

    def __init__(self, base_url: str, *, api_key: str | None = None) -> None:
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self.http = httpx2.Client(
            base_url=base_url,
            headers=headers,
            timeout=httpx2.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self.http.close()

    def call(self, method: str, path: str, **options: Any) -> Json:  # noqa: ANN401 - httpx2's own
        """Send a request and return the JSON object of the answer; {} if it has no body."""
        response = self.http.request(method, path, **options)
        if response.is_error:
            raise RefusedError(response)
        body: Json = response.json() if response.content else {}
        return body

    def post_turn(self, text: str, *, idempotency_key: str | None = None, **fields: object) -> Json:
        """Post a turn and return it. fields: further members of the body."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return self.call("POST", "/v1/turns", json={"input": text, **fields}, headers=headers)

    def stream_turn(self, text: str, **fields: object) -> EventStream:
        """Post a turn and read its events from the answer."""
        return self._stream("POST", "/v1/turns", None, json={"input": text, **fields})

    def get_turn(self, turn_id: str, *, wait_s: float | None = None) -> Json:
        """Return a turn. wait_s: hold the answer until the turn has ended or so long."""
        params = {} if wait_s is None else {"wait": f"{wait_s:g}"}
        return self.call("GET", f"/v1/turns/{turn_id}", params=params)

    def events(self, turn_id: str, last_event_id: str | None = None) -> EventStream:
        """Read a turn's events, from the start or after an id. Status 204: nothing to come."""
        headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        path = f"/v1/turns/{turn_id}/events"
        return self._stream("GET", path, last_event_id, headers=headers)

    def inject(self, turn_id: str, content: str, **fields: object) -> Json:
        """Send a message to a running turn."""
        body = {"content": content, **fields}
        return self.call("POST", f"/v1/turns/{turn_id}/inject", json=body)

    def decide(self, turn_id: str, tool_call_id: str, *, approve: bool, **fields: object) -> Json:
        """Approve or refuse a tool call."""
        path = f"/v1/turns/{turn_id}/approvals/{tool_call_id}"
        return self.call("POST", path, json={"approve": approve, **fields})

    def injections(self, turn_id: str) -> list[Json]:
        """Return the injected messages of a turn, oldest first."""
        return self._items(f"/v1/turns/{turn_id}/injections")

    def cancel(self, turn_id: str, reason: str | None = None) -> Json:
        """Ask a turn to stop and return it as it is then."""
        body = {} if reason is None else {"reason": reason}
        return self.call("POST", f"/v1/turns/{turn_id}/cancel", json=body)

    def conversations(self) -> list[Json]:
        """Return all conversations."""
        return self._items("/v1/conversations")

    def conversation(self, conversation_id: str) -> Json:
        """Return one conversation."""
        return self.call("GET", f"/v1/conversations/{conversation_id}")

    def delete_conversation(self, conversation_id: str) -> None:
        """Delete a conversation and all that belongs to it."""
        self.call("DELETE", f"/v1/conversations/{conversation_id}")

    def messages(self, conversation_id: str) -> list[Json]:
        """Return all messages of a conversation in order."""
        return self._items(f"/v1/conversations/{conversation_id}/messages")

    def models(self) -> list[Json]:
        """Return all model configurations."""
        return self._items("/v1/models")

    def put_model(self, name: str, **fields: object) -> Json:
        """Create or replace a model configuration."""
        return self.call("PUT", f"/v1/models/{name}", json=fields)

    def delete_model(self, name: str) -> None:
        """Delete a model configuration."""
        self.call("DELETE", f"/v1/models/{name}")

    def _items(self, path: str) -> list[Json]:
        """Return the items of all pages of a list."""
        items: list[Json] = []
        page = self.call("GET", path)
        items += page["items"]
        while page["next"] is not None:
            page = self.call("GET", path, params={"after": page["next"]})
            items += page["items"]
        return items

    def _stream(
        self,
        method: str,
        path: str,
        after: str | None,
        *,
        headers: Json | None = None,
        json: Json | None = None,
    ) -> EventStream:
        request = self.http.build_request(
            method,
            path,
            json=json,
            headers={"Accept": EVENT_STREAM} | (headers or {}),
        )
        response = self.http.send(request, stream=True)
        if response.is_error:
            response.read()
            raise RefusedError(response)
        if response.status_code != httpx2.codes.NO_CONTENT:
            assert _content_type(response).startswith(EVENT_STREAM), response.headers
        return EventStream(response, after)


def _content_type(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "")
