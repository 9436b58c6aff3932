"""Answers as bytes: the chunks of a stream, or one JSON object."""

import json
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import orjson

from demo.protocol import ChatRequest
from demo.reply import Reply, ToolCall, Usage
from demo.token_count import count_texts

DONE = b"data: [DONE]\n\n"
CORRUPT = b'data: {"id": "chatcmpl-\n\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """An answer ready to be sent: `chunks` make it complete, `end` marks that it is."""

    content_type: str
    chunks: tuple[bytes, ...]
    end: bytes


def encode_reply(request: ChatRequest, reply: Reply, usage: Usage) -> Encoded:
    """Return the answer in the form that the request asks for.

    One that is not streamed comes in two chunks as well, so that it can be cut or held between.
    """
    head: dict[str, object] = {
        "id": f"chatcmpl-{secrets.token_hex(12)}",
        "created": int(time.time()),
        "model": request.model,
    }
    reply_calls = [_encode_call(call) for call in reply.tool_calls]
    if request.is_streamed:
        chunks = tuple(_encode_stream(head, request, reply, reply_calls, usage))
        return Encoded(content_type="text/event-stream; charset=utf-8", chunks=chunks, end=DONE)
    body = _dump(_completion(head, reply, reply_calls, usage))
    middle = len(body) // 2
    chunks = (body[:middle], body[middle:])
    return Encoded(content_type="application/json", chunks=chunks, end=b"")


def count_reply(reply: Reply) -> int:
    """Return the tokens of an answer, thoughts included."""
    calls = (text for call in reply.tool_calls for text in (call.name, call.arguments_json))
    texts = ("".join(reply.reasoning), "".join(reply.text))
    return count_texts(texts) + count_texts(calls)


def _encode_stream(
    head: Mapping[str, object],
    request: ChatRequest,
    reply: Reply,
    calls: list[dict[str, object]],
    usage: Usage,
) -> Iterator[bytes]:
    asks_usage = request.includes_usage and reply.reports_usage
    frame: dict[str, object] = {**head, "object": "chat.completion.chunk"}
    rest: dict[str, object] = {"usage": None} if asks_usage else {}
    for delta, reason in _deltas(reply, calls):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        yield _event({**frame, "choices": [choice], **rest})
    if asks_usage:
        yield _event({**frame, "choices": [], "usage": _encode_usage(usage)})


def _deltas(
    reply: Reply, calls: list[dict[str, object]]
) -> Iterator[tuple[dict[str, object], str | None]]:
    yield {"role": "assistant", "content": "" if reply.text else None}, None
    for piece in reply.reasoning_pieces:
        yield {"reasoning_content": piece}, None
    for piece in reply.text_pieces:
        yield {"content": piece}, None
    for number, (call, wire) in enumerate(zip(reply.tool_calls, calls, strict=True)):
        index = number if reply.numbers_calls else 0
        function = {"name": call.name, "arguments": ""}
        yield {"tool_calls": [{"index": index, **wire, "function": function}]}, None
        for piece in _cut(call.arguments_json, reply.arguments_chunk_chars):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}, None
    yield {}, reply.final_reason


def _completion(
    head: Mapping[str, object],
    reply: Reply,
    calls: list[dict[str, object]],
    usage: Usage,
) -> dict[str, object]:
    message: dict[str, object] = {
        "role": "assistant",
        "content": "".join(reply.text) or None,
        "refusal": None,
    }
    if reply.reasoning:
        message["reasoning_content"] = "".join(reply.reasoning)
    if calls:
        message["tool_calls"] = calls
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": reply.final_reason,
    }
    completion = {**head, "object": "chat.completion", "choices": [choice]}
    return completion | ({"usage": _encode_usage(usage)} if reply.reports_usage else {})


def _encode_call(call: ToolCall) -> dict[str, object]:
    return {
        "id": call.id or f"call_{secrets.token_hex(12)}",
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments_json},
    }


def _encode_usage(usage: Usage) -> dict[str, object]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def _cut(text: str, size: int) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _event(value: Mapping[str, object]) -> bytes:
    return b"data: " + _dump(value) + b"\n\n"


def _dump(value: Mapping[str, object]) -> bytes:
    try:
        return orjson.dumps(value)
    # Half a character, as some providers send when they split one: only an escape can hold it.
    except orjson.JSONEncodeError:
        return json.dumps(value).encode("ascii")
