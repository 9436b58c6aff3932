"""The model client: streamed chat completions of any OpenAI-compatible provider.

The official client sends the request and reads nothing: its typed objects cost several times more
than all the rest of a call. So the body is encoded here, the bytes of the answer are parsed here,
and a call that failed before its answer began is made again from here.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from functools import lru_cache

import httpx2
import structlog
from openai import AsyncOpenAI, DefaultAioHttpClient

from shared.errors import (
    Deferred,
    ModelError,
    ModelRateLimitError,
    ModelStreamError,
    UnsupportedParameterError,
)
from shared.file_store import FileStore
from workers.context.images import load_images
from workers.model.assembly import Assembly
from workers.model.failures import (
    CALL_ERRORS,
    broken_stream,
    call_error,
    not_a_stream,
    stream_error,
)
from workers.model.json_mode import read_actions, to_json_mode
from workers.model.json_values import parse_object
from workers.model.limiter import ModelLimiter
from workers.model.parameters import PARAMETERS, Refusals
from workers.model.request_body import encode_body
from workers.model.retry import Retry
from workers.model.sse import SseDecoder
from workers.model.timeouts import CallClock, Timeouts
from workers.model.values import ModelEvent, ModelRequest, ModelResponse, ModelTarget

log = structlog.get_logger()

# What the transport takes for "as many as are wanted": the worker's slots are the limit.
UNLIMITED = 0
# Below the 5 s after which common servers close an idle connection, else both meet.
KEEPALIVE_S = 4.0
# Providers and keys whose clients are kept. A client is cheap: all share their connections.
MAX_CLIENTS = 64
# Servers that want no key are sent one all the same: the client insists.
NO_KEY = "none"
# After the last chunk: how long to wait for the end, without which a connection is not used again.
DRAIN_S = 0.5
DONE = b"[DONE]"
HEADERS = {
    # Makes the client hand out the response unread, as its `with_streaming_response` does.
    "X-Stainless-Raw-Response": "stream",
    "Accept": "text/event-stream",
    # Compression would hold chunks back.
    "Accept-Encoding": "identity",
}


class ModelClient:
    """Calls models. One per worker process, used on one event loop.

    files: where the images of requests are read.
    limiter: permits each try of a call.
    refusals: what providers turned out not to know.
    """

    def __init__(
        self,
        files: FileStore,
        limiter: ModelLimiter,
        refusals: Refusals,
        *,
        timeouts: Timeouts,
        retry: Retry,
    ) -> None:
        self._files = files
        self._limiter = limiter
        self._refusals = refusals
        self._timeouts = timeouts
        self._retry = retry
        self._http = DefaultAioHttpClient(
            limits=httpx2.Limits(max_connections=UNLIMITED, keepalive_expiry=KEEPALIVE_S),
            timeout=httpx2.Timeout(
                connect=timeouts.connect_s,
                # Reading is timed here, by phases.
                read=None,
                write=timeouts.chunk_s,
                # Bounds the look-up of the host's name too.
                pool=timeouts.connect_s,
            ),
        )
        self._client_of = lru_cache(maxsize=MAX_CLIENTS)(self._create_client)

    async def close(self) -> None:
        """Close all connections. No stream may be open: its reader would not be woken."""
        await self._http.aclose()

    async def pause(self, retries: int) -> None:
        """Wait as before a retry. retries: how many there were."""
        await asyncio.sleep(self._retry.jitter_s(retries))

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Call the model and yield its answer as it comes; the last item is the ModelResponse.

        A model that cannot call tools, or whose provider refuses them, is asked in JSON mode; other
        parameters that it refuses are left out. Tried again until an answer begins,
        never after. Cancelling the task that reads, or closing the generator, closes the
        connection at once; whoever may stop reading early closes it with `contextlib.aclosing`.
        Raises Deferred if there is no room for the call within the model's limits, and
        ModelError: ModelStreamError when the answer broke off or could not be read,
        ContextLengthError when the request is too long, others as their names say.
        """
        if not request.tools:
            return self._stream(request)
        target = request.target
        if not target.abilities.tool_call or "tools" in self._refusals.refused(target):
            return self._stream_actions(request)
        return self._stream_calls(request)

    async def _stream_calls(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        try:
            async with aclosing(self._stream(request)) as events:
                async for event in events:
                    yield event
        except UnsupportedParameterError as error:
            if error.parameter != "tools":
                raise
        else:
            return
        async with aclosing(self._stream_actions(request)) as events:
            async for event in events:
                yield event

    async def _stream_actions(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        async with aclosing(self._stream(to_json_mode(request))) as events:
            async for event in read_actions(events):
                yield event

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Make the call, again as long as nothing of an answer has come."""
        target = request.target
        retries, has_begun = 0, False
        refusal: ModelRateLimitError | None = None
        while True:
            try:
                async with aclosing(self._permitted(request)) as events:
                    async for event in events:
                        has_begun = True
                        yield event
            except Deferred:
                # Its provider has no room for long: another has.
                if refusal is not None and target.fallback is not None:
                    raise refusal from None
                raise
            except ModelError as error:
                pause_s = None if has_begun else self._retry.pause_s(retries, error)
                refusal = error if isinstance(error, ModelRateLimitError) else None
                self._close_gate(target, refusal, pause_s)
                if has_begun and error.may_retry:
                    raise ModelStreamError(error.message) from error
                if pause_s is None:
                    raise
                code = error.code
            else:
                return
            retries += 1
            log.info("model_call_retried", model=target.name, error=code, pause_s=round(pause_s, 3))
            if refusal is None:
                await asyncio.sleep(pause_s)

    def _close_gate(
        self,
        target: ModelTarget,
        refusal: ModelRateLimitError | None,
        pause_s: float | None,
    ) -> None:
        """Have everybody wait in line who calls a model that takes no more requests for now."""
        if refusal is not None and refusal.may_retry:
            self._limiter.close(target, self._retry.gate_s(pause_s, refusal))

    async def _permitted(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        async with (
            self._limiter.permit(request.target, request.ticket) as permit,
            aclosing(self._attempt(request)) as events,
        ):
            async for event in events:
                if isinstance(event, ModelResponse):
                    permit.settle(event.usage)
                yield event

    async def _attempt(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        assembly = Assembly(request)
        has_begun = False
        response, clock = await self._send(request)
        try:
            async with aclosing(_read_payloads(response, clock, request.target)) as payloads:
                async for payload in payloads:
                    has_begun = True
                    for event in _take(payload, assembly, request.target):
                        yield event
        except CALL_ERRORS as error:
            if not has_begun:
                raise call_error(error, request.target) from error
            if not assembly.is_finished:
                raise broken_stream(error, request.target) from error
        finally:
            await response.aclose()
        for event in assembly.finish():
            yield event

    async def _send(self, request: ModelRequest) -> tuple[httpx2.Response, CallClock]:
        """Send the request; again without what the provider turns out not to know."""
        loaded = await load_images(request, self._files)
        while True:
            left_out = self._refusals.refused(request.target)
            try:
                return await self._post(request.target, encode_body(loaded, left_out))
            except UnsupportedParameterError as error:
                parameter = next((it for it in PARAMETERS if it == error.parameter), None)
                if parameter == "tool_choice" and (
                    request.tool_choice is None or parameter in left_out
                ):
                    # Not said by us: without it, the provider takes no tools at all.
                    parameter = "tools"
                if parameter is None or parameter in left_out:
                    raise
                log.info("model_parameter_refused", model=request.target.name, parameter=parameter)
                self._refusals.learn_refused(request.target, parameter)
                if parameter == "tools":
                    raise UnsupportedParameterError(error.message, parameter) from error

    async def _post(
        self,
        target: ModelTarget,
        body: bytes,
    ) -> tuple[httpx2.Response, CallClock]:
        clock = CallClock(self._timeouts)
        try:
            client = self._client_of(target.base_url, target.api_key)
            response = await clock.wait(
                client.post(
                    "/chat/completions",
                    content=body,
                    cast_to=httpx2.Response,
                    options={"headers": HEADERS},
                ),
            )
        except (*CALL_ERRORS, ValueError) as error:
            # ValueError: a key that no header can hold, a password in the base URL.
            raise call_error(error, target) from error
        return response, clock

    def _create_client(self, base_url: str, api_key: str) -> AsyncOpenAI:
        return AsyncOpenAI(
            base_url=base_url,
            api_key=api_key or NO_KEY,
            max_retries=0,
            timeout=self._http.timeout,
            http_client=self._http,
        )


def _take(payload: bytes, assembly: Assembly, target: ModelTarget) -> list[ModelEvent]:
    chunk = parse_object(payload)
    if error := stream_error(chunk, target):
        raise error
    return assembly.feed(chunk)


async def _read_payloads(
    response: httpx2.Response,
    clock: CallClock,
    target: ModelTarget,
) -> AsyncGenerator[bytes, None]:
    """Yield the JSON of each chunk, up to the end of the answer."""
    content_type = response.headers.get("content-type", "").partition(";")[0]
    if content_type == "text/html":
        raise not_a_stream(content_type, target)
    if content_type == "application/json":
        yield await clock.wait(response.aread())
        return
    decoder = SseDecoder()
    blocks = response.aiter_bytes()
    while (block := await clock.wait(anext(blocks, None))) is not None:
        clock.begin()
        for payload in decoder.feed(block):
            if payload == DONE:
                await _drain(blocks)
                return
            yield payload
    for payload in decoder.finish():
        if payload != DONE:
            yield payload


async def _drain(blocks: AsyncIterator[bytes]) -> None:
    """Read to the end of a complete answer. Failures do not matter any more."""
    with suppress(*CALL_ERRORS):
        async with asyncio.timeout(DRAIN_S):
            async for _ in blocks:
                pass
