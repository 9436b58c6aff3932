"""The model client against a server that sends exactly the bytes a test wants."""

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from shared.errors import (
    ModelAuthenticationError,
    ModelError,
    ModelRateLimitError,
    ModelRequestError,
    ModelStreamError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from shared.file_store import FileStore
from tests.helpers.limits import open_limiter
from tests.helpers.ports import free_port
from tests.helpers.refusals import Remembered
from tests.helpers.waiting import wait_until_async
from tests.unit.workers.model.requests import ADD, REQUEST
from workers.context.estimate import estimate_messages, estimate_tokens
from workers.model.client import MAX_CLIENTS, ModelClient
from workers.model.limiter import ModelLimiter
from workers.model.retry import Retry
from workers.model.timeouts import Timeouts
from workers.model.values import (
    ModelEvent,
    ModelRequest,
    ModelResponse,
    TextDelta,
    Usage,
)

EVENT_STREAM = {"content-type": "text/event-stream"}
# More than the hundred connections that HTTP clients allow themselves by default.
MANY = 300
NO_FILES = FileStore(Path("there is no such folder"))
Script = Callable[["Call"], Awaitable[None]]
PATIENT = Timeouts(connect_s=5, first_byte_s=5, chunk_s=5, call_s=20)
RETRY = Retry(max_retries=2, base_s=0.01, cap_s=5.0)


@dataclass(slots=True)
class Call:
    """One request as the server got it, and the means to answer it."""

    writer: asyncio.StreamWriter
    headers: dict[str, str]
    body: bytes
    # The connection was closed by the client.
    is_gone: bool = False

    async def begin(self, status: int = 200, headers: dict[str, str] = EVENT_STREAM) -> None:
        lines = [f"HTTP/1.1 {status} Whatever", "transfer-encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        await self.send_raw("\r\n".join([*lines, "", ""]).encode())

    async def send(self, data: bytes) -> None:
        await self.send_raw(b"%x\r\n%s\r\n" % (len(data), data))

    async def send_raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def end(self) -> None:
        await self.send_raw(b"0\r\n\r\n")

    async def answer(
        self, body: bytes, *, status: int = 200, headers: dict[str, str] = EVENT_STREAM
    ) -> None:
        await self.begin(status, headers)
        if body:
            await self.send(body)
        await self.end()


@dataclass(slots=True)
class Server:
    """A server of one test; the n-th request is answered by the n-th script, or the last."""

    port: int
    scripts: list[Script] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    connections: int = 0
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    @property
    def request(self) -> ModelRequest:
        target = replace(REQUEST.target, base_url=f"http://127.0.0.1:{self.port}/v1")
        return replace(REQUEST, target=target)

    def script(self, *scripts: Script) -> None:
        self.scripts = list(scripts)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                await self._serve_one(reader, writer)
        writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = [line.partition(":") for line in head.split("\r\n")[1:]]
        headers = {name.lower(): value.strip() for name, _, value in lines}
        body = await reader.readexactly(int(headers["content-length"]))
        call = Call(writer, headers, body)
        self.calls.append(call)
        script = self.scripts[min(len(self.calls), len(self.scripts)) - 1]
        answering = asyncio.ensure_future(script(call))
        gone = asyncio.ensure_future(reader.read(1))
        await asyncio.wait([answering, gone], return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            call.is_gone = True
            answering.cancel()
        gone.cancel()
        await asyncio.wait([answering, gone])


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server(port=free_port())
    listener = await asyncio.start_server(made.serve, "127.0.0.1", made.port, backlog=MANY)
    yield made
    listener.close()
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks)


def new_client(
    limiter: ModelLimiter, *, timeouts: Timeouts = PATIENT, retry: Retry = RETRY
) -> ModelClient:
    return ModelClient(NO_FILES, limiter, Remembered(), timeouts=timeouts, retry=retry)


@pytest.fixture
async def limiter(redis_url: str) -> AsyncIterator[ModelLimiter]:
    async with open_limiter(redis_url) as limiter:
        yield limiter


@pytest.fixture
async def client(limiter: ModelLimiter) -> AsyncIterator[ModelClient]:
    made = new_client(limiter)
    yield made
    await made.close()


def event(data: object) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


def text(content: str, finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish_reason}
    return event({"choices": [choice]})


USAGE = event({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2}})
DONE = b"data: [DONE]\n\n"
HELLO = text("Hello ") + text("wörld 😀") + text("", "stop") + USAGE + DONE


async def say_hello(call: Call) -> None:
    await call.answer(HELLO)


async def accept(_call: Call) -> None:
    """Take the request and answer nothing."""
    await asyncio.Event().wait()


async def only_begin(call: Call) -> None:
    """Send the headers and nothing more."""
    await call.begin()
    await asyncio.Event().wait()


async def drip(call: Call) -> None:
    """Send an answer that does not end."""
    await call.begin()
    while True:
        await call.send(text("more "))
        await asyncio.sleep(0.05)


async def hold(call: Call) -> None:
    """Send the beginning of an answer and nothing more."""
    await call.begin()
    await call.send(text("Hello "))
    await asyncio.Event().wait()


def refuse(status: int, body: object, headers: dict[str, str] | None = None) -> Script:
    async def script(call: Call) -> None:
        named = {"content-type": "application/json"} | (headers or {})
        await call.answer(json.dumps(body).encode(), status=status, headers=named)

    return script


async def read(client: ModelClient, request: ModelRequest) -> list[ModelEvent]:
    return [event async for event in client.stream(request)]


async def test_answer_is_streamed_and_then_whole(server: Server, client: ModelClient) -> None:
    server.script(say_hello)
    assert await read(client, server.request) == [
        TextDelta("Hello "),
        TextDelta("wörld 😀"),
        ModelResponse(
            text="Hello wörld 😀",
            tool_calls=(),
            finish_reason="stop",
            usage=Usage(input_tokens=10, output_tokens=2),
        ),
    ]


async def test_request_is_what_providers_expect(server: Server, client: ModelClient) -> None:
    server.script(say_hello)
    await read(client, replace(server.request, tools=(ADD,), max_tokens=7))
    call = server.calls[0]
    assert call.headers["authorization"] == "Bearer sk-very-secret"
    assert call.headers["content-type"] == "application/json"
    assert call.headers["accept-encoding"] == "identity"
    assert json.loads(call.body) == {
        "model": "model-1",
        "tools": [ADD.to_wire()],
        "messages": [message.to_wire() for message in REQUEST.messages],
        "max_tokens": 7,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_same_request_has_the_same_bytes(server: Server, client: ModelClient) -> None:
    server.script(say_hello)
    await read(client, server.request)
    await read(client, server.request)
    assert server.calls[0].body == server.calls[1].body


async def test_server_without_key_is_sent_a_placeholder(
    server: Server, client: ModelClient
) -> None:
    server.script(say_hello)
    target = replace(server.request.target, api_key="")
    await read(client, replace(server.request, target=target))
    assert server.calls[0].headers["authorization"] == "Bearer none"


async def test_bytes_cut_anywhere_give_the_same_answer(server: Server, client: ModelClient) -> None:
    async def drip(call: Call) -> None:
        await call.begin()
        for start in range(0, len(HELLO), 7):
            await call.send(HELLO[start : start + 7])
            await asyncio.sleep(0)
        await call.end()

    server.script(drip, say_hello)
    assert await read(client, server.request) == await read(client, server.request)


async def test_text_arrives_before_the_answer_is_complete(
    server: Server, client: ModelClient
) -> None:
    server.script(hold)
    async with aclosing(client.stream(server.request)) as events:
        assert await anext(events) == TextDelta("Hello ")


async def test_connection_is_used_again(server: Server, client: ModelClient) -> None:
    server.script(say_hello)
    for _ in range(3):
        await read(client, server.request)
    assert server.connections == 1


async def test_server_that_does_not_close_after_the_end_is_not_waited_for(
    server: Server, client: ModelClient
) -> None:
    async def stay(call: Call) -> None:
        await call.begin()
        await call.send(HELLO)
        await asyncio.Event().wait()

    server.script(stay)
    async with asyncio.timeout(2):
        assert len(await read(client, server.request)) == 3


async def test_answer_of_a_server_that_does_not_stream(server: Server, client: ModelClient) -> None:
    message = {"role": "assistant", "content": "Hello"}
    server.script(refuse(200, {"choices": [{"message": message, "finish_reason": "stop"}]}))
    first, answer = await read(client, server.request)
    assert first == TextDelta("Hello")
    assert isinstance(answer, ModelResponse)
    assert answer.usage.is_estimated


async def test_usage_that_is_not_reported_is_estimated(server: Server, client: ModelClient) -> None:
    async def script(call: Call) -> None:
        await call.answer(text("Hello", "stop"))

    server.script(script)
    answer = (await read(client, server.request))[-1]
    assert isinstance(answer, ModelResponse)
    assert answer.usage == Usage(
        input_tokens=estimate_messages(REQUEST.messages),
        output_tokens=estimate_tokens("Hello"),
        is_estimated=True,
    )


async def end_silently(call: Call) -> None:
    await call.answer(text("Hello "))


async def end_at_once(call: Call) -> None:
    await call.answer(b"")


async def drop(call: Call) -> None:
    await call.begin()
    await call.send(text("Hello "))
    call.writer.close()


async def drop_inside_a_chunk(call: Call) -> None:
    await call.begin()
    await call.send_raw(b"ff\r\ndata: {")
    call.writer.close()


async def send_rubbish(call: Call) -> None:
    await call.answer(text("Hello ") + b"data: {rubbish\n\n" + HELLO)


async def cut_json(call: Call) -> None:
    await call.answer(text("Hello ")[:-9])


async def fail_inside(call: Call) -> None:
    await call.answer(text("Hello ") + event({"error": {"type": "server_error"}}) + DONE)


@pytest.mark.parametrize(
    "script",
    [end_silently, end_at_once, drop, send_rubbish, cut_json, fail_inside],
)
async def test_broken_stream_is_an_error_and_not_tried_again(
    server: Server,
    client: ModelClient,
    script: Script,
) -> None:
    server.script(script)
    with pytest.raises(ModelStreamError):
        await read(client, server.request)
    assert len(server.calls) == 1


async def test_connection_lost_after_the_finish_reason_does_not_matter(
    server: Server, client: ModelClient
) -> None:
    async def script(call: Call) -> None:
        await call.begin()
        await call.send(text("Hello", "stop"))
        call.writer.close()

    server.script(script)
    assert len(await read(client, server.request)) == 2


async def test_error_in_the_stream_is_mapped(server: Server, client: ModelClient) -> None:
    async def script(call: Call) -> None:
        await call.answer(event({"error": {"code": "rate_limit_exceeded"}}))

    server.script(script)
    with pytest.raises(ModelRateLimitError):
        await read(client, server.request)
    assert len(server.calls) == 1 + RETRY.max_retries


async def test_connection_lost_before_any_chunk_is_tried_again(
    server: Server, client: ModelClient
) -> None:
    server.script(drop_inside_a_chunk, say_hello)
    assert len(await read(client, server.request)) == 3


@pytest.mark.parametrize(
    ("script", "timeouts", "kind", "setting", "tries"),
    [
        (accept, {"first_byte_s": 0.2}, ModelTimeoutError, "LLM_FIRST_BYTE_TIMEOUT_S", 2),
        (only_begin, {"first_byte_s": 0.2}, ModelTimeoutError, "LLM_FIRST_BYTE_TIMEOUT_S", 2),
        (hold, {"chunk_s": 0.2}, ModelStreamError, "LLM_CHUNK_TIMEOUT_S", 1),
        (drip, {"call_s": 0.5}, ModelStreamError, "LLM_CALL_TIMEOUT_S", 1),
        (only_begin, {"call_s": 0.2}, ModelTimeoutError, "LLM_CALL_TIMEOUT_S", 2),
    ],
)
async def test_slowness_ends_the_call_and_names_the_setting(  # noqa: PLR0917 - a table
    server: Server,
    limiter: ModelLimiter,
    script: Script,
    timeouts: dict[str, float],
    kind: type[ModelError],
    setting: str,
    tries: int,
) -> None:
    """Made again only as long as nothing of an answer has come."""
    once_more = Retry(max_retries=1, base_s=0.01, cap_s=1.0)
    client = ModelClient(
        NO_FILES, limiter, Remembered(), timeouts=replace(PATIENT, **timeouts), retry=once_more
    )
    server.script(script)
    with pytest.raises(kind, match=setting):
        await read(client, server.request)
    assert len(server.calls) == tries
    await client.close()
    await wait_until_async(
        lambda: all(call.is_gone for call in server.calls), message="a connection is open"
    )


async def test_connection_that_is_not_accepted_ends_the_call(limiter: ModelLimiter) -> None:
    """A full backlog: the kernel answers nobody."""
    hasty = Retry(max_retries=0, base_s=0.01, cap_s=1.0)
    client = ModelClient(
        NO_FILES, limiter, Remembered(), timeouts=replace(PATIENT, connect_s=0.3), retry=hasty
    )
    with socket.socket() as deaf, contextlib.ExitStack() as stack:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(2):
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0)
            waiting.connect_ex(deaf.getsockname())
        target = replace(REQUEST.target, base_url=f"http://127.0.0.1:{deaf.getsockname()[1]}/v1")
        with pytest.raises(ModelTimeoutError, match="LLM_CONNECT_TIMEOUT_S"):
            await read(client, replace(REQUEST, target=target))
    await client.close()


async def test_keep_alive_comments_are_no_silence(server: Server, limiter: ModelLimiter) -> None:
    async def script(call: Call) -> None:
        await call.begin()
        for _ in range(4):
            await call.send(b": ping\n\n")
            await asyncio.sleep(0.1)
        await call.send(HELLO)
        await call.end()

    client = ModelClient(
        NO_FILES, limiter, Remembered(), timeouts=replace(PATIENT, chunk_s=0.3), retry=RETRY
    )
    server.script(script)
    assert len(await read(client, server.request)) == 3
    await client.close()


async def test_error_before_any_text_is_tried_again(server: Server, client: ModelClient) -> None:
    busy = event({"error": {"code": "rate_limit_exceeded", "message": "busy"}})

    async def script(call: Call) -> None:
        await call.answer(busy)

    server.script(script, say_hello)
    assert len(await read(client, server.request)) == 3
    assert len(server.calls) == 2


async def test_error_after_text_breaks_the_answer_off(server: Server, client: ModelClient) -> None:
    overloaded = event({"error": {"code": "overloaded", "message": "busy"}})

    async def script(call: Call) -> None:
        await call.answer(text("Hello ") + overloaded)

    server.script(script, say_hello)
    with pytest.raises(ModelStreamError, match="busy"):
        await read(client, server.request)
    assert len(server.calls) == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ModelRequestError),
        (401, ModelAuthenticationError),
        (404, ModelRequestError),
        (429, ModelRateLimitError),
        (503, ModelUnavailableError),
    ],
)
async def test_refusal_is_mapped_and_chained(
    server: Server, client: ModelClient, status: int, kind: type[ModelError]
) -> None:
    headers = {"x-should-retry": "false"}
    server.script(refuse(status, {"error": {"message": "because"}}, headers))
    with pytest.raises(kind, match="model-1") as caught:
        await read(client, server.request)
    assert caught.value.__cause__ is not None
    assert "sk-very-secret" not in str(caught.value)
    assert len(server.calls) == 1


async def test_call_is_tried_again_until_an_answer_begins(
    server: Server, client: ModelClient
) -> None:
    busy = refuse(429, {"error": {"message": "busy"}}, {"retry-after-ms": "1"})
    failing = refuse(503, {}, {"retry-after-ms": "1"})
    server.script(busy, failing, say_hello)
    assert len(await read(client, server.request)) == 3
    assert len(server.calls) == 3
    # The same request, to the byte.
    assert len({call.body for call in server.calls}) == 1


async def test_tries_are_bounded(server: Server, client: ModelClient) -> None:
    server.script(refuse(503, {}, {"retry-after-ms": "1"}))
    with pytest.raises(ModelUnavailableError):
        await read(client, server.request)
    assert len(server.calls) == 3


async def test_web_page_names_the_setting(server: Server, client: ModelClient) -> None:
    async def script(call: Call) -> None:
        await call.answer(b"<html>", headers={"content-type": "text/html; charset=utf-8"})

    server.script(script)
    with pytest.raises(ModelRequestError, match=r"text/html.*LLM_BASE_URL"):
        await read(client, server.request)


@pytest.mark.parametrize(
    ("base_url", "kind"),
    [
        ("http://127.0.0.1:{port}/v1", ModelUnavailableError),
        ("http://nowhere.invalid/v1", ModelUnavailableError),
        ("http://[::1", ModelUnavailableError),
        ("http://user:password@127.0.0.1:{port}/v1", ModelRequestError),
    ],
)
async def test_address_that_does_not_work_names_the_setting(
    client: ModelClient, base_url: str, kind: type[ModelError]
) -> None:
    target = replace(REQUEST.target, base_url=base_url.format(port=free_port()))
    with pytest.raises(kind, match="LLM_BASE_URL") as caught:
        await read(client, replace(REQUEST, target=target))
    assert "password" not in str(caught.value)


async def test_key_that_no_header_holds_names_the_setting(
    server: Server, client: ModelClient
) -> None:
    target = replace(server.request.target, api_key="ключ")
    with pytest.raises(ModelRequestError, match="LLM_API_KEY"):
        await read(client, replace(server.request, target=target))


async def test_cancelling_the_reader_closes_the_connection(
    server: Server, client: ModelClient
) -> None:
    server.script(hold)
    reading = asyncio.create_task(read(client, server.request))
    await wait_until_async(lambda: server.calls, message="the call")
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await wait_until_async(
        lambda: server.calls[0].is_gone,
        timeout_s=1,
        message="the server sees the connection closed",
    )


async def test_cancelling_before_the_answer_begins_closes_the_connection(
    server: Server, client: ModelClient
) -> None:
    async def never(_call: Call) -> None:
        await asyncio.Event().wait()

    server.script(never)
    reading = asyncio.create_task(read(client, server.request))
    await wait_until_async(lambda: server.calls, message="the call")
    reading.cancel()
    await wait_until_async(
        lambda: server.calls[0].is_gone,
        timeout_s=1,
        message="the server sees the connection closed",
    )
    assert reading.cancelled()


async def test_closing_the_iterator_closes_the_connection(
    server: Server, client: ModelClient
) -> None:
    server.script(hold)
    async with aclosing(client.stream(server.request)) as events:
        await anext(events)
    await wait_until_async(
        lambda: server.calls[0].is_gone,
        timeout_s=1,
        message="the server sees the connection closed",
    )


async def test_hundreds_of_streams_are_open_at_once(server: Server, client: ModelClient) -> None:
    everyone = asyncio.Barrier(MANY)

    async def together(call: Call) -> None:
        await everyone.wait()
        await say_hello(call)

    server.script(together)
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*(read(client, server.request) for _ in range(MANY)))
    assert {len(answer) for answer in answers} == {3}


async def test_clients_of_providers_are_kept_and_bounded(
    server: Server, client: ModelClient
) -> None:
    server.script(say_hello)
    keys = [f"key-{number}" for number in range(MAX_CLIENTS + 1)]
    for key in itertools.chain(keys, keys[-2:]):
        target = replace(server.request.target, api_key=key)
        await read(client, replace(server.request, target=target))
    info = client._client_of.cache_info()
    assert (info.currsize, info.hits) == (MAX_CLIENTS, 2)
    assert server.connections == 1
    assert server.calls[-1].headers["authorization"] == f"Bearer {keys[-1]}"


async def test_closing_an_unused_client_does_nothing(limiter: ModelLimiter) -> None:
    await new_client(limiter).close()
