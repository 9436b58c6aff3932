"""What surrounds every request: its id, its line in the log, the limit of its body.

Plain ASGI, so that responses stream through untouched.
"""

import re
import time
import uuid
from dataclasses import dataclass
from http import HTTPStatus

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import CODES, problem_response, unexpected_response

log = structlog.get_logger()

REQUEST_ID = "X-Request-ID"
PROBES = ("/healthz", "/readyz")
UPLOADS = "/v1/files"
# What a form has around its file.
FORM_BYTES = 16_384
_VALID_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


class RequestContext:
    """Gives a request its id and its line in the log, and answers what nobody caught."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope))
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)
        await _Exchange(scope, send, request_id).run(self._app, receive)


class _Exchange:
    """One request and its response."""

    def __init__(self, scope: Scope, send: Send, request_id: str) -> None:
        self._scope = scope
        self._send = send
        self._request_id = request_id
        self._status: int | None = None

    async def run(self, app: ASGIApp, receive: Receive) -> None:
        started = time.monotonic()
        try:
            await app(self._scope, receive, self.send)
        except Exception:
            log.exception("request_crashed")
            if self._status is not None:
                raise
            response = unexpected_response(self._scope["path"])
            await response(self._scope, receive, self.send)
        finally:
            self._log(elapsed_ms=round((time.monotonic() - started) * 1000, 1))

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = int(message["status"])
            MutableHeaders(scope=message)[REQUEST_ID] = self._request_id
        await self._send(message)

    def _log(self, *, elapsed_ms: float) -> None:
        write = log.debug if self._scope["path"] in PROBES else log.info
        write(
            "request",
            method=self._scope["method"],
            route=getattr(self._scope.get("route"), "path", None),
            status=self._status,
            ms=elapsed_ms,
        )


class BodyLimit:
    """Refuses bodies above a size, by what they announce and by what comes.

    max_file_bytes: limit of an uploaded file; all other bodies have max_bytes.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int, max_file_bytes: int) -> None:
        self._app = app
        self._limit = _Limit(max_bytes, "send less, and upload images to /v1/files")
        self._upload_limit = _Limit(max_file_bytes + FORM_BYTES, "send a smaller file")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = Request(scope).url.path
        limit = self._upload_limit if scope["path"] == UPLOADS else self._limit
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and int(announced) > limit.max_bytes:
            await _refuse(path, limit.sentence)(scope, receive, send)
            return
        await self._app(scope, limit.count(receive), send)


@dataclass(frozen=True, slots=True)
class _Limit:
    max_bytes: int
    advice: str

    @property
    def sentence(self) -> str:
        return f"The body is larger than {self.max_bytes} bytes: {self.advice}"

    def count(self, receive: Receive) -> Receive:
        """Let messages through up to the limit, and raise HTTPException at the first beyond."""
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.max_bytes:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self.sentence)
            return message

        return counted


def _refuse(path: str, detail: str) -> ASGIApp:
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return problem_response(
        path,
        status=status,
        code=CODES[status],
        title=status.phrase,
        detail=detail,
    )


def _request_id(headers: Headers) -> str:
    given = headers.get(REQUEST_ID, "")
    return given if _VALID_REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
