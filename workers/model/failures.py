"""What went wrong with a model call, in our own words: from any failure to one of our errors.

Messages name the model, its server and the setting to look at. They never hold a key, and of what
the provider said only the beginning.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import aiohttp
import httpx2
from openai import APIStatusError, OpenAIError

from shared.errors import (
    ContextLengthError,
    ModelAuthenticationError,
    ModelError,
    ModelRateLimitError,
    ModelRequestError,
    ModelStreamError,
    ModelTimeoutError,
    ModelUnavailableError,
    UnsupportedParameterError,
)
from shared.text import storable
from workers.model.parameters import find_refused
from workers.model.timeouts import CALL, CHUNK, CONNECT, FIRST_BYTE, CallTimeoutError
from workers.model.values import ModelTarget
from workers.model.window_sizes import read_sizes

# All that sending and reading can raise. The client passes some of its transport's errors through.
CALL_ERRORS = (OpenAIError, httpx2.HTTPError, httpx2.InvalidURL, aiohttp.ClientError, TimeoutError)
# Most characters of the provider's own words in a message.
MAX_CHARS = 300
# Shorter ones are placeholders such as "none", and would be struck out of ordinary words.
MIN_KEY_CHARS = 8

CONTEXT_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
# Providers without such a code say it in words.
CONTEXT_WORDS = re.compile(
    r"maximum (context|prompt|model) length"
    r"|(exceed|larger than|longer than|greater than|overflow)\w*"
    r" (the )?(available |model'?s? |maximum )*(context|max length|model token limit)"
    r"|context (window|length|size)\w* (is )?exceed"
    r"|(prompt|input) is too long|too many tokens"
    r"|input token count.* exceeds|input tokens exceed"
    r"|tokens \+ `max_new_tokens` must be"
    r"|range of input length should be",
    re.IGNORECASE,
)

# Errors inside a stream come without a status; this is what their code or type stands for.
STATUS_OF_CODE = {
    "invalid_api_key": 401,
    "authentication_error": 401,
    "permission_error": 403,
    "permission_denied": 403,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "insufficient_quota": 429,
    "too_many_requests": 429,
    "invalid_request_error": 400,
    "badrequesterror": 400,
    "model_not_found": 404,
    "not_found_error": 404,
    "timeout": 408,
    "timeout_error": 408,
    "overloaded": 503,
    "overloaded_error": 503,
    "service_unavailable": 503,
}
TIMEOUT_STATUSES = frozenset({408, 504})
OVERLOADED_STATUSES = frozenset({503, 529})
BAD_REQUEST, UNPROCESSABLE = 400, 422
SERVER_ERRORS = 500
# Some providers say so of requests that meet each other.
CONFLICT = 409
# Nothing to wait for: somebody has to pay.
SPENT_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """What a provider said about a request it did not serve."""

    status: int | None
    code: str
    message: str
    # The field that it names, or "".
    param: str = ""

    @property
    def is_context_length(self) -> bool:
        return self.code in CONTEXT_CODES or bool(CONTEXT_WORDS.search(self.message))


def call_error(error: Exception, target: ModelTarget) -> ModelError:
    """Return our error for one that was raised before the answer began."""
    if isinstance(error, APIStatusError):
        refusal = _read_refusal(error.body, target, error.status_code)
        refused = _refused(refusal, target)
        refused.retry_after_s = read_retry_after(error.response.headers)
        refused.should_retry = _should_retry(error.response.headers, refusal)
        return refused
    if _is_timeout(error):
        return _timed_out(error, target)
    if isinstance(error, ValueError):
        return ModelRequestError(
            f"The key or the base URL of {target.name} cannot be used as it is: check LLM_API_KEY"
            " and LLM_BASE_URL",
        )
    return ModelUnavailableError(
        f"The model {target.name} cannot be reached at {shown_url(target.base_url)}"
        f"{_reason(error)}: check LLM_BASE_URL, or base_url of its row",
    )


def broken_stream(error: Exception, target: ModelTarget) -> ModelStreamError:
    """Return our error for one that was raised after the answer began."""
    if _is_timeout(error):
        return ModelStreamError(
            f"The answer of {target.name} broke off: {_slowness(error, target)}",
        )
    return ModelStreamError(f"The answer of {target.name} broke off: the connection was lost")


def stream_error(chunk: dict[str, object], target: ModelTarget) -> ModelError | None:
    """Return our error for a chunk that holds an error of the provider's; None for any other."""
    if not chunk.get("error") and chunk.get("object") != "error":
        return None
    refusal = _read_refusal(chunk, target, None)
    status = refusal.status
    is_known = status is not None and (status < SERVER_ERRORS or status in OVERLOADED_STATUSES)
    if is_known or refusal.is_context_length:
        return _refused(refusal, target)
    return ModelStreamError(f"The answer of {target.name} broke off{_said(refusal)}")


def not_a_stream(content_type: str, target: ModelTarget) -> ModelRequestError:
    """Return the error for an answer that no model gives."""
    return ModelRequestError(
        f"{shown_url(target.base_url)} answers with {content_type}, not as a model does:"
        " check LLM_BASE_URL",
    )


def shown_url(url: str) -> str:
    """Return a URL without what may be secret: user, password and query."""
    scheme, separator, rest = url.partition("?")[0].rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _host(target: ModelTarget) -> str:
    return shown_url(target.base_url).rpartition("://")[2].partition("/")[0]


def _refused(refusal: _Refusal, target: ModelTarget) -> ModelError:
    name, host, said = target.name, _host(target), _said(refusal)
    match refusal.status:
        case 401 | 403:
            return ModelAuthenticationError(
                f"The model's provider refused the key for {name} at {host}: check LLM_API_KEY",
            )
        case 429:
            return ModelRateLimitError(f"{host} refuses more requests to {name} for now{said}")
        case 404:
            return ModelRequestError(
                f"{shown_url(target.base_url)} has no model {name}: check the name (`model` of the"
                " turn, a row, or LLM_MODEL) and the path of LLM_BASE_URL, or base_url of its row"
                f"{_aside(said)}",
            )
    if refusal.is_context_length:
        sizes = read_sizes(refusal.message)
        return ContextLengthError(
            f"The request does not fit the window of {name}{said}",
            sizes.prompt,
            sizes.window,
        )
    status = refusal.status or BAD_REQUEST
    if status in (BAD_REQUEST, UNPROCESSABLE):
        parameter = find_refused(refusal.message, refusal.param)
        if parameter is not None:
            return UnsupportedParameterError(
                f"{name} at {host} does not know {parameter}{said}",
                parameter,
            )
    return _failed(status, f"{name} at {host}", said)


def _failed(status: int, model: str, said: str) -> ModelError:
    if status in TIMEOUT_STATUSES:
        return ModelTimeoutError(f"{model} did not answer in time ({status}){said}")
    if status >= SERVER_ERRORS or status == CONFLICT:
        failed = ModelUnavailableError(f"{model} fails for now ({status}){said}")
        # A defect that this request met: no sign that the model is down.
        failed.may_fall_back = status != SERVER_ERRORS
        return failed
    return ModelRequestError(f"{model} refused the request ({status}){said}")


def _read_refusal(body: object, target: ModelTarget, status: int | None) -> _Refusal:
    """Read the body of an error, in whichever shape it comes."""
    if isinstance(body, list) and body:
        body = body[0]
    if isinstance(body, dict):
        body = body.get("error") or body
    if not isinstance(body, dict):
        text = body if isinstance(body, str) and not body.lstrip().startswith("<") else ""
        return _Refusal(status=status, code="", message=_clean(text, target))
    message = body.get("message") or body.get("detail") or body.get("title")
    codes = [str(body[key]).lower() for key in ("code", "type") if body.get(key)]
    context = [code for code in codes if code in CONTEXT_CODES]
    return _Refusal(
        status=status or next(filter(None, map(_status_of, codes)), None),
        code=(context or codes or [""])[0],
        message=_clean(message if isinstance(message, str) else "", target),
        param=str(body.get("param") or ""),
    )


def _status_of(code: str) -> int | None:
    return int(code) if re.fullmatch(r"[45]\d\d", code) else STATUS_OF_CODE.get(code)


def _clean(message: str, target: ModelTarget) -> str:
    if len(target.api_key) >= MIN_KEY_CHARS:
        message = message.replace(target.api_key, "[key]")
    return storable(" ".join(message.split()))[:MAX_CHARS]


def _said(refusal: _Refusal) -> str:
    return f": {refusal.message}" if refusal.message else ""


def _aside(said: str) -> str:
    return f" ({said.removeprefix(': ')})" if said else ""


def _timed_out(error: Exception, target: ModelTarget) -> ModelTimeoutError:
    is_connecting = any(isinstance(it, aiohttp.ConnectionTimeoutError) for it in _causes(error))
    if is_connecting:
        url = shown_url(target.base_url)
        return ModelTimeoutError(
            f"{url} accepts no connection in time: check LLM_BASE_URL, or raise {CONNECT}",
        )
    return ModelTimeoutError(_slowness(error, target))


def _slowness(error: Exception, target: ModelTarget) -> str:
    settings = [it.setting for it in _causes(error) if isinstance(it, CallTimeoutError)]
    took = {
        FIRST_BYTE: "did not begin to answer in time",
        CALL: "took too long for its answer",
    }
    setting = settings[0] if settings else CHUNK
    return (
        f"{target.name} at {_host(target)} {took.get(setting, 'was silent for too long')}:"
        f" try again, or raise {setting}"
    )


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return for how many seconds a provider wants to be left alone; None if it does not say."""
    for name, factor in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * factor
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max((until - datetime.now(UTC)).total_seconds(), 0.0)


def _should_retry(headers: Mapping[str, str], refusal: _Refusal) -> bool | None:
    if refusal.code in SPENT_CODES:
        return False
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower())


def _is_timeout(error: Exception) -> bool:
    """Tell a timeout by its first cause: the transport also calls lost connections timeouts."""
    return any(isinstance(cause, TimeoutError) for cause in _causes(error))


def _reason(error: Exception) -> str:
    reasons = [it.strerror for it in _causes(error) if isinstance(it, OSError) and it.strerror]
    return f" ({reasons[-1]})" if reasons else ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
