"""Errors as HTTP answers: RFC 9457 problem details that OpenAI clients understand too."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import orjson
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from api.schemas import TAGS
from shared.database import StorageError
from shared.errors import (
    ConflictError,
    GoneError,
    InvalidInputError,
    LeaseLostError,
    ModelError,
    NotFoundError,
    TurnEndedError,
    TurnmillError,
    UnavailableError,
)
from shared.refusals import explain

log = structlog.get_logger()

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 2

# The status of an error is that of its nearest base in this table.
STATUSES: dict[type[TurnmillError], HTTPStatus] = {
    TurnmillError: HTTPStatus.INTERNAL_SERVER_ERROR,
    InvalidInputError: HTTPStatus.UNPROCESSABLE_ENTITY,
    NotFoundError: HTTPStatus.NOT_FOUND,
    GoneError: HTTPStatus.GONE,
    ConflictError: HTTPStatus.CONFLICT,
    LeaseLostError: HTTPStatus.CONFLICT,
    UnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    ModelError: HTTPStatus.BAD_GATEWAY,
}

# Codes of what the HTTP layer itself refuses.
CODES: dict[int, str] = {
    HTTPStatus.BAD_REQUEST: "invalid_body",
    HTTPStatus.FORBIDDEN: "forbidden",
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "body_too_large",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "unsupported_media_type",
}

UNEXPECTED = "Something went wrong here: try again, and give the X-Request-ID if it stays"
STORAGE_GONE = "The database cannot be used now: try again in a moment"


def status_of(error: TurnmillError) -> HTTPStatus:
    """Return the HTTP status that tells of an error."""
    for kind in type(error).__mro__:
        if kind in STATUSES:
            return STATUSES[kind]
    return HTTPStatus.INTERNAL_SERVER_ERROR


def problem_response(
    path: str,
    *,
    status: int,
    code: str,
    title: str,
    detail: str,
    headers: Mapping[str, str] | None = None,
    errors: Sequence[Mapping[str, str]] = (),
    members: Mapping[str, object] | None = None,
) -> Response:
    """Return an error as a response.

    errors: `{field, message}` for each field that is wrong. members: further extension members.
    """
    is_server_error = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    body: dict[str, object] = {
        "type": f"urn:turnmill:problem:{code}",
        "title": title,
        "status": int(status),
        "detail": detail,
        "instance": path,
        "code": code,
        **(members or {}),
        "error": {
            "message": detail,
            "type": "server_error" if is_server_error else "invalid_request_error",
            "param": errors[0]["field"] if errors else None,
            "code": code,
        },
    }
    if errors:
        body["errors"] = errors
    return Response(orjson.dumps(body), status, dict(headers or {}), MEDIA_TYPE)


def describe_error(path: str, error: TurnmillError) -> Response:
    """Return one of our own errors as a response, without what is nobody's business."""
    status = status_of(error)
    title = (type(error).__doc__ or "").strip().splitlines()[0].rstrip(".")
    detail = error.message
    if isinstance(error, StorageError):
        title, detail = "The database cannot be reached", STORAGE_GONE
    elif status == HTTPStatus.INTERNAL_SERVER_ERROR:
        title, detail = status.phrase, UNEXPECTED
    unavailable = status == HTTPStatus.SERVICE_UNAVAILABLE
    return problem_response(
        path,
        status=status,
        code=error.code,
        title=title,
        detail=detail,
        headers={"Retry-After": str(RETRY_AFTER_S)} if unavailable else None,
        members={"status_of_turn": error.status} if isinstance(error, TurnEndedError) else None,
    )


def unexpected_response(path: str) -> Response:
    """Return the answer to a failure that nobody foresaw."""
    return problem_response(
        path,
        status=HTTPStatus.INTERNAL_SERVER_ERROR,
        code=TurnmillError.code,
        title=HTTPStatus.INTERNAL_SERVER_ERROR.phrase,
        detail=UNEXPECTED,
    )


def register(app: FastAPI) -> None:
    """Let the app answer errors with problem details."""
    app.add_exception_handler(TurnmillError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)


async def _on_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, TurnmillError):
        raise error
    if status_of(error) >= HTTPStatus.INTERNAL_SERVER_ERROR:
        # Where a part is away, its traceback says no more than its sentence.
        is_expected = isinstance(error, UnavailableError)
        log.error(
            "request_failed",
            code=error.code,
            reason=error.message,
            exc_info=None if is_expected else error,
        )
    return describe_error(request.url.path, error)


async def _on_http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    status = HTTPStatus(error.status_code)
    return problem_response(
        request.url.path,
        status=status,
        code=CODES.get(status, "http_error"),
        title=status.phrase,
        detail=_describe_http(request, error),
        headers=error.headers,
    )


def _describe_http(request: Request, error: HTTPException) -> str:
    if error.detail != HTTPStatus(error.status_code).phrase:
        return str(error.detail)
    if error.status_code == HTTPStatus.NOT_FOUND:
        return "There is nothing at this path: /docs lists all routes"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("Allow", "another method")
        return f"{request.method} is not possible here: use {allowed}"
    return str(error.detail)


async def _on_validation(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    found = error.errors()
    if found[0]["type"] == "json_invalid":
        return problem_response(
            request.url.path,
            status=HTTPStatus.BAD_REQUEST,
            code="invalid_json",
            title="The body is not valid JSON",
            detail=f"The body is not valid JSON: {found[0]['ctx']['error']} at character"
            f" {found[0]['loc'][-1]}",
        )
    errors = [{"field": _name_field(item["loc"]), "message": explain(item)} for item in found]
    return problem_response(
        request.url.path,
        status=HTTPStatus.UNPROCESSABLE_ENTITY,
        code=InvalidInputError.code,
        title="The request is not valid",
        detail="; ".join(f"{item['field']} {item['message']}" for item in errors[:5]),
        errors=errors[:50],
    )


def _name_field(location: Sequence[str | int]) -> str:
    """Name a field as the client sent it: `input[0].text`, `Idempotency-Key`, `body`."""
    if len(location) == 1:
        return str(location[0])
    name = ""
    for part in location[1:]:
        if isinstance(part, int):
            name += f"[{part}]"
        elif part not in TAGS:
            name += f".{part}" if name else part
    # A name that the client made up may be anything.
    return name.encode("utf-8", "replace").decode()[:200] or "body"
