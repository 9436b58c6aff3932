from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import aiohttp
import httpx2
import pytest
from openai import APIConnectionError, APIStatusError

from shared.errors import (
    ContextLengthError,
    ModelAuthenticationError,
    ModelError,
    ModelRateLimitError,
    ModelRequestError,
    ModelStreamError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from tests.unit.workers.model.requests import TARGET
from workers.model.failures import (
    broken_stream,
    call_error,
    read_retry_after,
    shown_url,
    stream_error,
)
from workers.model.timeouts import CALL, CHUNK, FIRST_BYTE, CallTimeoutError

URL = "http://models.test/v1/chat/completions"


def status_error(status: int, body: object = None) -> APIStatusError:
    answer = httpx2.Response(status, request=httpx2.Request("POST", URL))
    return APIStatusError("failed", response=answer, body=body)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ModelRequestError),
        (401, ModelAuthenticationError),
        (403, ModelAuthenticationError),
        (404, ModelRequestError),
        (408, ModelTimeoutError),
        (409, ModelUnavailableError),
        (413, ModelRequestError),
        (422, ModelRequestError),
        (429, ModelRateLimitError),
        (500, ModelUnavailableError),
        (502, ModelUnavailableError),
        (503, ModelUnavailableError),
        (504, ModelTimeoutError),
        (529, ModelUnavailableError),
    ],
)
def test_status_decides_the_error(status: int, kind: type[ModelError]) -> None:
    error = call_error(status_error(status, {"message": "because"}), TARGET)
    assert type(error) is kind
    assert "model-1" in error.message


def test_refused_key_names_model_host_and_setting() -> None:
    error = call_error(status_error(401, {"message": "Incorrect key sk-very-secret"}), TARGET)
    assert error.message == (
        "The model's provider refused the key for model-1 at models.test:81: check LLM_API_KEY"
    )


def test_unknown_model_names_model_and_setting() -> None:
    error = call_error(status_error(404, {"message": "no such model"}), TARGET)
    assert error.message == (
        "http://models.test:81/v1 has no model model-1: check the name (`model` of the turn, a row,"
        " or LLM_MODEL) and the path of LLM_BASE_URL, or base_url of its row (no such model)"
    )


@pytest.mark.parametrize(
    "body",
    [
        {"message": "temperature is too high"},
        {"error": {"message": "temperature is too high"}},
        {"error": "temperature is too high"},
        [{"error": {"message": "temperature is too high"}}],
        {"detail": "temperature is too high"},
        "temperature\nis too high",
    ],
)
def test_refused_request_says_what_the_provider_said(body: object) -> None:
    error = call_error(status_error(400, body), TARGET)
    assert error.message.endswith(": temperature is too high")


@pytest.mark.parametrize("body", [None, "<html>Bad gateway</html>", [], {}, {"message": 3}, 7])
def test_body_that_says_nothing_is_left_out(body: object) -> None:
    error = call_error(status_error(502, body), TARGET)
    assert error.message == "model-1 at models.test:81 fails for now (502)"


def test_provider_words_are_bounded_and_hold_no_key() -> None:
    error = call_error(status_error(400, {"message": "sk-very-secret\0" + "x" * 5_000}), TARGET)
    assert "sk-very-secret" not in error.message
    assert "\0" not in error.message
    assert len(error.message) < 400


def test_placeholder_key_is_not_struck_out() -> None:
    error = call_error(status_error(400, {"message": "none"}), replace(TARGET, api_key="none"))
    assert error.message.endswith(": none")


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "the request exceeds the available context size (4096 tokens), try increasing it",
        "Your input exceeds the context window of this model.",
        "prompt is too long: 208310 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
        "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        "Input is too long for requested model.",
        "Your request exceeded model token limit: 8192",
        "invalid params, context window exceeds limit",
        "Prompt exceeds max length",
        "too many tokens: total number of tokens in the prompt cannot exceed 4081",
        "`inputs` tokens + `max_new_tokens` must be <= 4097",
        "Range of input length should be [1, 30720]",
        "The number of tokens to keep from the prompt is greater than the context length",
    ],
)
@pytest.mark.parametrize("status", [400, 413, 500])
def test_context_length_is_known_by_words(status: int, message: str) -> None:
    error = call_error(status_error(status, {"message": message}), TARGET)
    assert type(error) is ContextLengthError


@pytest.mark.parametrize(
    "body",
    [
        {"message": "no", "code": "context_length_exceeded"},
        {"message": "no", "code": 400, "type": "exceed_context_size_error"},
        {"error": {"code": "context_length_exceeded", "type": "invalid_request_error"}},
    ],
)
def test_context_length_is_known_by_code(body: object) -> None:
    assert type(call_error(status_error(400, body), TARGET)) is ContextLengthError


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens is too large: 64000. This model supports at most 16384 completion tokens.",
        "Invalid value: 'context' is not an allowed role.",
        "Tool name is too long",
        "temperature exceeds the maximum of 2",
        "messages with role 'tool' must follow tool_calls",
    ],
)
def test_other_refusals_are_no_context_length(message: str) -> None:
    assert type(call_error(status_error(400, {"message": message}), TARGET)) is ModelRequestError


def test_lost_connection_is_no_timeout_though_the_transport_says_so() -> None:
    error = APIConnectionError(request=httpx2.Request("POST", URL))
    error.__cause__ = httpx2.ConnectTimeout("")
    error.__cause__.__cause__ = ConnectionRefusedError(111, "Connection refused")
    assert type(call_error(error, TARGET)) is ModelUnavailableError
    assert call_error(error, TARGET).message == (
        "The model model-1 cannot be reached at http://models.test:81/v1 (Connection refused):"
        " check LLM_BASE_URL, or base_url of its row"
    )


def test_timeouts_name_the_setting_to_change() -> None:
    connecting = call_error(aiohttp.ConnectionTimeoutError(), TARGET)
    assert type(connecting) is ModelTimeoutError
    assert "LLM_CONNECT_TIMEOUT_S" in connecting.message
    for setting in (FIRST_BYTE, CHUNK, CALL):
        slow = call_error(CallTimeoutError(setting), TARGET)
        assert type(slow) is ModelTimeoutError
        assert slow.message.endswith(setting)


def test_broken_stream_tells_silence_from_loss() -> None:
    assert CHUNK in broken_stream(CallTimeoutError(CHUNK), TARGET).message
    assert CHUNK not in broken_stream(httpx2.ReadError(""), TARGET).message


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "7", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
    ],
)
def test_time_to_wait_is_read_from_headers(headers: dict[str, str], seconds: float | None) -> None:
    assert read_retry_after(headers) == seconds


def test_date_to_wait_for_is_seconds_from_now() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    seconds = read_retry_after({"retry-after": later})
    assert seconds == pytest.approx(60, abs=5)


@pytest.mark.parametrize(
    ("headers", "body", "may_retry"),
    [
        ({}, {}, True),
        ({"x-should-retry": "false"}, {}, False),
        ({"x-should-retry": "true"}, {}, True),
        ({"x-should-retry": "true"}, {"error": {"code": "insufficient_quota"}}, False),
    ],
)
def test_provider_may_say_whether_to_ask_again(
    headers: dict[str, str], body: dict[str, object], *, may_retry: bool
) -> None:
    response = httpx2.Response(
        429, headers=headers, request=httpx2.Request("POST", "http://models.test")
    )
    error = call_error(APIStatusError("no", response=response, body=body), TARGET)
    assert error.may_retry == may_retry


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": "rate_limit_exceeded", "message": "slow down"}, ModelRateLimitError),
        ({"code": 429, "message": "slow down"}, ModelRateLimitError),
        ({"code": None, "type": "insufficient_quota"}, ModelRateLimitError),
        ({"code": "invalid_api_key"}, ModelAuthenticationError),
        ({"type": "invalid_request_error", "message": "bad tool"}, ModelRequestError),
        ({"type": "BadRequestError", "code": 400}, ModelRequestError),
        ({"code": "context_length_exceeded", "type": "server_error"}, ContextLengthError),
        ({"message": "prompt is too long: 9 tokens > 8 maximum"}, ContextLengthError),
        ({"type": "overloaded_error"}, ModelUnavailableError),
        ({"code": "503"}, ModelUnavailableError),
        ({"type": "timeout_error"}, ModelTimeoutError),
        ({"type": "server_error", "message": "it broke"}, ModelStreamError),
        ({"code": 502, "message": "upstream"}, ModelStreamError),
        ("it broke", ModelStreamError),
    ],
)
def test_error_in_the_stream_is_mapped_by_code_and_type(
    error: object,
    kind: type[ModelError],
) -> None:
    assert type(stream_error({"error": error}, TARGET)) is kind


def test_error_object_as_the_chunk_itself() -> None:
    chunk: dict[str, object] = {"object": "error", "message": "bad", "code": 400}
    assert type(stream_error(chunk, TARGET)) is ModelRequestError


@pytest.mark.parametrize("chunk", [{}, {"choices": []}, {"error": None, "choices": []}])
def test_other_chunks_are_no_errors(chunk: dict[str, object]) -> None:
    assert stream_error(chunk, TARGET) is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://a.test/v1", "https://a.test/v1"),
        ("https://u:p@a.test:8/v1?key=s", "https://a.test:8/v1"),
        ("http://[::1", "http://[::1"),
        ("nothing", "nothing"),
    ],
)
def test_shown_url_holds_no_secret(url: str, shown: str) -> None:
    assert shown_url(url) == shown
