"""The server: an ASGI application that answers chat completions as it is told to.

Runs under uvicorn with `http=ClosableProtocol`. Each request is served by tasks on the event loop;
a held or slow one costs memory only.
"""

import asyncio
import hmac
import inspect
from collections.abc import Awaitable, Callable, Collection, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from demo.answer import Answer
from demo.call import Call, Observer, Outcome, Received
from demo.prompt_cache import PromptCache
from demo.protocol import ChatRequest, parse_request
from demo.refusal import Refusal
from demo.reply import Reply
from demo.token_count import count_request

Respond = Callable[[ChatRequest], Reply | Awaitable[Reply]]

UNAUTHORIZED = 401
NOT_FOUND = 404


def create_app(
    respond: Respond,
    *,
    models: Sequence[str] = (),
    api_key: str | None = None,
    context_size: int | None = None,
    unsupported: Collection[str] = (),
    observer: Observer | None = None,
) -> Starlette:
    """Return the application.

    respond: chooses the reply to a valid request.
    models: names that are served; none: every name is.
    api_key: the key that requests must bring; None: any, or none.
    context_size: tokens that a request and its `max_tokens` may have together; None: no limit.
    unsupported: parameters that are refused, as `max_tokens` is by some models.
    """
    gate = Gate(models=models, api_key=api_key, context_size=context_size, unsupported=unsupported)
    endpoint = ChatEndpoint(respond, gate, observer or Observer())

    async def list_models(request: Request) -> Response:
        try:
            gate.check_key(request.headers.get("authorization", ""))
        except Refusal as refusal:
            return _refuse(refusal)
        return JSONResponse({"object": "list", "data": [_model(name) for name in models]})

    return Starlette(
        routes=[
            Route("/v1/chat/completions", endpoint, methods=["POST"]),
            Route("/v1/models", list_models, methods=["GET"]),
        ],
        exception_handlers={HTTPException: _answer_unknown_url},
    )


class Gate:
    """Decides which requests are served."""

    def __init__(
        self,
        *,
        models: Sequence[str],
        api_key: str | None,
        context_size: int | None,
        unsupported: Collection[str] = (),
    ) -> None:
        self._models = models
        self._api_key = api_key
        self._context_size = context_size
        self._unsupported = frozenset(unsupported)

    def admit(self, received: Received) -> ChatRequest:
        """Return the request. Raises Refusal."""
        self.check_key(received.headers.get("authorization", ""))
        request = parse_request(received.raw)
        if self._models and request.model not in self._models:
            raise Refusal(
                f"The model `{request.model}` does not exist or you do not have access to it.",
                status=NOT_FOUND,
                code="model_not_found",
            )
        for name in sorted(self._unsupported.intersection(request.body)):
            raise Refusal(
                f"Unsupported parameter: '{name}' is not supported with this model.",
                param=name,
                code="unsupported_parameter",
            )
        self._check_size(request)
        return request

    def check_key(self, authorization: str) -> None:
        """Raise Refusal if a key is wanted and this header's value does not hold it."""
        if self._api_key is None:
            return
        scheme, _, key = authorization.partition(" ")
        if scheme.lower() != "bearer" or not key:
            raise Refusal("You didn't provide an API key.", status=UNAUTHORIZED)
        if not hmac.compare_digest(key.strip().encode(), self._api_key.encode()):
            raise Refusal(
                "Incorrect API key provided.", status=UNAUTHORIZED, code="invalid_api_key"
            )

    def _check_size(self, request: ChatRequest) -> None:
        if self._context_size is None:
            return
        prompt, completion = count_request(request), request.max_tokens or 0
        if prompt + completion > self._context_size:
            raise Refusal(
                f"This model's maximum context length is {self._context_size} tokens. However, you"
                f" requested {prompt + completion} tokens ({prompt} in the messages, {completion}"
                " in the completion). Please reduce the length of the messages or completion.",
                param="messages",
                code="context_length_exceeded",
            )


class ChatEndpoint:
    """Serves `POST /chat/completions`."""

    def __init__(self, respond: Respond, gate: Gate, observer: Observer) -> None:
        self._respond = respond
        self._gate = gate
        self._observer = observer
        self._cache = PromptCache()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, as an ASGI application."""
        http = Request(scope, receive)
        try:
            received = Received(raw=await http.body(), headers=dict(http.headers))
        except ClientDisconnect:
            return
        try:
            request = self._gate.admit(received)
        except Refusal as refusal:
            self._observer.refused(received, refusal)
            await _refuse(refusal)(scope, receive, send)
            return
        call = Call(received, request, self._cache.add(request))
        answer = Answer(call, self._observer, scope=scope, receive=receive, send=send)
        await self._serve(call, answer, receive)

    async def _serve(self, call: Call, answer: Answer, receive: Receive) -> None:
        """Write the answer until it ends or the client is gone, whichever comes first."""
        writer = asyncio.ensure_future(self._write(call, answer))
        listener = asyncio.ensure_future(_wait_for_disconnect(receive))
        call.start(writer)
        self._observer.begun(call)
        try:
            await asyncio.wait({writer, listener}, return_when=asyncio.FIRST_COMPLETED)
            if not writer.done():
                answer.end(Outcome.DISCONNECTED)
                return
            if writer.cancelled():
                answer.close()
            else:
                writer.result()
            # Closing takes effect in the loop's next round; returning earlier counts as a crash.
            await listener
        finally:
            writer.cancel()
            listener.cancel()
            answer.end(Outcome.ABORTED)

    async def _write(self, call: Call, answer: Answer) -> None:
        chosen = self._respond(call.request)
        reply = await chosen if inspect.isawaitable(chosen) else chosen
        await answer.write(reply)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _answer_unknown_url(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else NOT_FOUND
    refusal = Refusal(
        f"Invalid URL ({request.method} {request.url.path})", status=status, code="unknown_url"
    )
    return _refuse(refusal)


def _refuse(refusal: Refusal) -> Response:
    return JSONResponse(refusal.to_wire(), refusal.status)


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "turnmill"}
