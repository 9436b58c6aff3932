"""What is refused, and in which words and codes; each case changes one thing in a good body."""

import copy
import json
from typing import Any

import pytest

from demo.protocol import parse_request
from demo.refusal import Refusal

SCHEMA = {"type": "object", "properties": {"expression": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "calculator", "parameters": SCHEMA}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "calculator", "arguments": "{}"}}
ASK = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "4"}
USER = {"role": "user", "content": "2+2?"}
PNG_URL = "data:image/png;base64,iVBORw0KGgo="
BODY: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "system", "content": "Be kind."}, USER, ASK, RESULT],
    "tools": [TOOL],
}


def body(**changes: object) -> dict[str, Any]:
    return copy.deepcopy(BODY) | changes


def chat(*messages: object) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages)}


def tool(**function: object) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f"} | function}


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in BODY.items() if name != key}


def user(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def calls(*items: object) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(items)}


# Body, the field that is named, and the code.
REFUSED: dict[str, tuple[object, str | None, str | None]] = {
    "unknown-key": (body(colour="red"), "colour", "unknown_parameter"),
    "no-model": (without("model"), "model", "missing_required_parameter"),
    "empty-model": (body(model=""), "model", "empty_string"),
    "no-messages": (without("messages"), "messages", "missing_required_parameter"),
    "empty-messages": (body(messages=[]), "messages", "empty_array"),
    "messages-no-array": (body(messages="hi"), "messages", "invalid_type"),
    "no-object": ([1], "body", "invalid_type"),
    "unknown-role": (
        chat({"role": "robot", "content": "x"}),
        "messages[0].role",
        "invalid_value",
    ),
    "function-role": (
        chat({"role": "function", "name": "f", "content": "x"}),
        "messages[0].role",
        "invalid_value",
    ),
    "unknown-message-key": (
        chat(USER | {"pinned": True}),
        "messages[0].pinned",
        "unknown_parameter",
    ),
    "null-user": (chat(user(None)), "messages[0].content", "invalid_type"),
    "no-user-content": (
        chat({"role": "user"}),
        "messages[0].content",
        "missing_required_parameter",
    ),
    "empty-user": (chat(user("")), "messages[0].content", "empty_string"),
    "number-user": (chat(user(1)), "messages[0].content", "invalid_type"),
    "no-parts": (chat(user([])), "messages[0].content", "empty_array"),
    "empty-part": (
        chat(user([{"type": "text", "text": ""}])),
        "messages[0].content[0].text",
        "empty_string",
    ),
    "unknown-part": (
        chat(user([{"type": "video", "video": "x"}])),
        "messages[0].content[0].type",
        "invalid_value",
    ),
    "image-without-url": (
        chat(user([{"type": "image_url", "image_url": {}}])),
        "messages[0].content[0].image_url.url",
        "missing_required_parameter",
    ),
    "image-bare-string": (
        chat(user([{"type": "image_url", "image_url": "https://x"}])),
        "messages[0].content[0].image_url",
        "invalid_type",
    ),
    "image-no-url": (
        chat(user([{"type": "image_url", "image_url": {"url": "cat.png"}}])),
        "messages[0].content[0].image_url.url",
        "invalid_value",
    ),
    "image-broken-base64": (
        chat(user([image(PNG_URL.rstrip("="))])),
        "messages[0].content[0].image_url.url",
        "invalid_value",
    ),
    "image-without-base64": (
        chat(user([image("data:image/svg+xml,<svg/>")])),
        "messages[0].content[0].image_url.url",
        "invalid_value",
    ),
    "image-of-unknown-type": (
        chat(user([image("data:image/png;base64,aGVsbG8=")])),
        None,
        "invalid_image_format",
    ),
    "image-from-assistant": (
        chat({"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}),
        "messages[0].content[0].type",
        "invalid_value",
    ),
    "assistant-of-nothing": (
        chat(USER, {"role": "assistant"}),
        "messages[1].content",
        "missing_required_parameter",
    ),
    "assistant-null": (
        chat(USER, {"role": "assistant", "content": None}),
        "messages[1].content",
        "invalid_type",
    ),
    "no-calls": (chat(USER, calls()), "messages[1].tool_calls", "empty_array"),
    "call-without-id": (
        chat(USER, calls({"type": "function", "function": CALL["function"]})),
        "messages[1].tool_calls[0].id",
        "missing_required_parameter",
    ),
    "call-id-too-long": (
        chat(USER, calls(CALL | {"id": "x" * 41})),
        "messages[1].tool_calls[0].id",
        "string_above_max_length",
    ),
    "arguments-no-text": (
        chat(USER, calls(CALL | {"function": {"name": "f", "arguments": {}}})),
        "messages[1].tool_calls[0].function.arguments",
        "invalid_type",
    ),
    "call-name": (
        chat(USER, calls(CALL | {"function": {"name": "a b", "arguments": ""}})),
        "messages[1].tool_calls[0].function.name",
        "invalid_value",
    ),
    "call-ids-alike": (chat(USER, calls(CALL, CALL)), "messages[1].tool_calls", "invalid_value"),
    "orphan-result": (chat(USER, RESULT), "messages[1].role", None),
    "result-of-other-call": (
        chat(USER, ASK, RESULT | {"tool_call_id": "call_2"}),
        "messages[2].tool_call_id",
        None,
    ),
    "result-twice": (chat(USER, ASK, RESULT, RESULT), "messages[3].tool_call_id", None),
    "result-after-others": (chat(USER, ASK, RESULT, USER, RESULT), "messages[4].role", None),
    "user-before-result": (chat(USER, ASK, USER, RESULT), "messages[2]", None),
    "no-result": (chat(USER, ASK), "messages", None),
    "one-result-of-two": (
        chat(USER, calls(CALL, CALL | {"id": "call_2"}), RESULT, USER),
        "messages[3]",
        None,
    ),
    "result-null": (
        chat(USER, ASK, RESULT | {"content": None}),
        "messages[2].content",
        "invalid_type",
    ),
    "result-without-id": (
        chat(USER, ASK, {"role": "tool", "content": "4"}),
        "messages[2].tool_call_id",
        "missing_required_parameter",
    ),
    "no-tools": (body(tools=[]), "tools", "empty_array"),
    "many-tools": (
        body(tools=[tool(name=f"f{n}") for n in range(129)]),
        "tools",
        "array_above_max_length",
    ),
    "tools-alike": (body(tools=[TOOL, TOOL]), "tools", "invalid_value"),
    "tool-type": (body(tools=[TOOL | {"type": "web"}]), "tools[0].type", "invalid_value"),
    "tool-name": (
        body(tools=[tool(name="get weather")]),
        "tools[0].function.name",
        "invalid_value",
    ),
    "tool-name-long": (
        body(tools=[tool(name="x" * 65)]),
        "tools[0].function.name",
        "invalid_value",
    ),
    "schema-no-object": (
        body(tools=[tool(parameters=[])]),
        "tools[0].function.parameters",
        "invalid_type",
    ),
    "schema-of-string": (
        body(tools=[tool(parameters={"type": "string"})]),
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    "schema-unknown-type": (
        body(tools=[tool(parameters={"type": "object", "properties": {"a": {"type": "text"}}})]),
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    "schema-array-of-what": (
        body(tools=[tool(parameters={"type": "object", "properties": {"a": {"type": "array"}}})]),
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    "schema-deep": (
        body(tools=[tool(parameters=nested(300))]),
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    "schema-required": (
        body(tools=[tool(parameters={"type": "object", "required": "a"})]),
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    "choice-without-tools": (chat(USER) | {"tool_choice": "auto"}, "tool_choice", None),
    "parallel-without-tools": (
        chat(USER) | {"parallel_tool_calls": True},
        "parallel_tool_calls",
        None,
    ),
    "choice-unknown": (body(tool_choice="any"), "tool_choice", "invalid_value"),
    "choice-of-absent-tool": (
        body(tool_choice={"type": "function", "function": {"name": "other"}}),
        "tool_choice",
        "invalid_value",
    ),
    "max-tokens-zero": (body(max_tokens=0), "max_tokens", "integer_below_min_value"),
    "max-tokens-text": (body(max_tokens="5"), "max_tokens", "invalid_type"),
    "max-tokens-flag": (body(max_tokens=True), "max_tokens", "invalid_type"),
    "max-tokens-twice": (
        body(max_tokens=5, max_completion_tokens=5),
        None,
        "invalid_parameter_combination",
    ),
    "temperature": (body(temperature=2.5), "temperature", "decimal_above_max_value"),
    "options-without-stream": (
        body(stream_options={"include_usage": True}),
        "stream_options",
        None,
    ),
    "stream-no-flag": (body(stream="yes"), "stream", "invalid_type"),
    "json-unmentioned": (body(response_format={"type": "json_object"}), "messages", None),
    "json-schema-unnamed": (
        body(response_format={"type": "json_schema", "json_schema": {"schema": {}}}),
        "response_format.json_schema.name",
        "missing_required_parameter",
    ),
}
MALFORMED = {
    "empty": b"",
    "cut": b'{"model": "m", ',
    "constant": b'{"model": NaN}',
    "not-utf8": b'{"model": "\xff"}',
    "surrogate-bytes": b'{"model": "\xed\xa0\x80"}',
    "deep": b"[" * 200_000,
    "long-number": b'{"seed": ' + b"9" * 5_000 + b"}",
}


def test_valid_body_is_read() -> None:
    request = parse_request(json.dumps(body(stream=True, max_completion_tokens=7)).encode())

    assert [message.role for message in request.messages] == ["system", "user", "assistant", "tool"]
    assert request.messages[2].tool_calls[0].arguments == "{}"
    assert request.tool_names == ("calculator",)
    assert (request.is_streamed, request.includes_usage, request.max_tokens) == (True, False, 7)
    assert request.last_user_text == "2+2?"


@pytest.mark.parametrize(("sent", "param", "code"), REFUSED.values(), ids=REFUSED)
def test_body_is_refused(sent: object, param: str | None, code: str | None) -> None:
    with pytest.raises(Refusal) as caught:
        parse_request(json.dumps(sent).encode())

    assert (caught.value.param, caught.value.code) == (param, code)
    assert caught.value.status == 400
    assert caught.value.to_wire()["error"]["type"] == "invalid_request_error"  # type: ignore[index]


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED)
def test_bytes_that_are_no_json_are_refused(raw: bytes) -> None:
    with pytest.raises(Refusal, match="could not parse the JSON body"):
        parse_request(raw)


@pytest.mark.parametrize(
    ("escaped", "text"),
    [(r"a\ud800b", "a?b"), (r"\ud83d\ude00", "😀"), (r"a\u0000b", "a\0b"), (r"\\ud800", r"\ud800")],
)
def test_odd_characters_are_taken(escaped: str, text: str) -> None:
    raw = f'{{"model": "m", "messages": [{{"role": "user", "content": "{escaped}"}}]}}'.encode()

    assert parse_request(raw).last_user_text == text


def test_parts_and_parallel_calls_are_taken() -> None:
    image = {"type": "image_url", "image_url": {"url": PNG_URL, "detail": "low"}}
    other = CALL | {"id": "call_2"}
    sent = chat(
        user([{"type": "text", "text": "What"}, image, {"type": "text", "text": "is it?"}]),
        calls(CALL, other),
        RESULT | {"tool_call_id": "call_2"},
        RESULT,
        {"role": "assistant", "content": "A cat."},
        USER | {"name": "ann"},
    )

    request = parse_request(json.dumps(sent).encode())

    assert request.messages[0].text == "What\n\nis it?"
    assert request.messages[0].images == 1


def test_nulls_stand_for_what_is_absent() -> None:
    names = ("max_tokens", "tool_choice", "stream", "stream_options", "response_format", "stop")

    request = parse_request(json.dumps(body(**dict.fromkeys(names))).encode())

    assert request.max_tokens is None
