"""`POST /chat/completions`: a body becomes a value, or is refused as the real API refuses it.

What the real API takes and this server does not serve (audio, several choices, the functions of
old) is refused too: better than an answer that ignores it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from demo.chat_messages import ChatMessage, parse_messages
from demo.chat_tools import OfferedTool, parse_tools
from demo.json_field import JsonField, parse_body
from demo.refusal import Refusal

MAX_STOP_SEQUENCES = 4
SCHEMA_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A valid request."""

    model: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[OfferedTool, ...] = ()
    # "auto", "none", "required" or the name of the one tool to call
    tool_choice: str = "auto"
    # Most tokens of the answer; None leaves it to the server.
    max_tokens: int | None = None
    is_streamed: bool = False
    includes_usage: bool = False
    # "text", "json_object" or "json_schema"
    response_format: str = "text"
    # The body as it was sent.
    body: dict[str, object] = field(default_factory=dict, repr=False)

    @property
    def last_user_text(self) -> str:
        """Text of the last user message, or nothing."""
        for message in reversed(self.messages):
            if message.role == "user":
                return message.text
        return ""

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names of the tools offered."""
        return tuple(tool.name for tool in self.tools)


def parse_request(raw: bytes) -> ChatRequest:
    """Return the request in a body. Raises Refusal if the real API would not serve it."""
    body = parse_body(raw)
    body.check_keys(KNOWN_KEYS)
    model = body.require("model").filled_text()
    messages = parse_messages(body.require("messages"))
    for key, check in CHECKS.items():
        if member := body.get_set(key):
            check(member)
    is_streamed, includes_usage = _parse_stream(body)
    return ChatRequest(
        model=model,
        messages=messages,
        tools=parse_tools(body),
        tool_choice=_read_choice(body),
        max_tokens=_parse_max_tokens(body),
        is_streamed=is_streamed,
        includes_usage=includes_usage,
        response_format=_parse_format(body, messages),
        body=body.members(),
    )


def _parse_stream(body: JsonField) -> tuple[bool, bool]:
    stream, options = body.get_set("stream"), body.get_set("stream_options")
    is_streamed = stream is not None and stream.flag()
    if options is None:
        return is_streamed, False
    if not is_streamed:
        raise Refusal(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            param="stream_options",
        )
    options.check_keys({"include_usage", "include_obfuscation"})
    usage = options.get_set("include_usage")
    return True, usage is not None and usage.flag()


def _parse_max_tokens(body: JsonField) -> int | None:
    old, new = body.get_set("max_tokens"), body.get_set("max_completion_tokens")
    if old and new:
        raise Refusal(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
            code="invalid_parameter_combination",
        )
    limit = old or new
    return None if limit is None else limit.integer(minimum=1)


def _parse_format(body: JsonField, messages: tuple[ChatMessage, ...]) -> str:
    field = body.get_set("response_format")
    if field is None:
        return "text"
    kind = field.require("type").choice({"text", "json_object", "json_schema"})
    field.check_keys({"type", "json_schema"} if kind == "json_schema" else {"type"})
    if kind == "json_object" and not any("json" in item.text.lower() for item in messages):
        raise Refusal(
            "'messages' must contain the word 'json' in some form, to use 'response_format' of"
            " type 'json_object'.",
            param="messages",
        )
    if kind == "json_schema":
        schema = field.require("json_schema")
        schema.check_keys({"name", "description", "schema", "strict"})
        schema.require("name").text(pattern=SCHEMA_NAME)
        schema.require("schema").members()
    return kind


def _read_choice(body: JsonField) -> str:
    choice = body.get_set("tool_choice")
    if choice is None:
        return "auto"
    return choice.text() if choice.is_text else choice.require("function").require("name").text()


def _check_stop(field: JsonField) -> None:
    if not field.is_text:
        for item in field.items(max_items=MAX_STOP_SEQUENCES):
            item.text()


def _check_probability_bias(field: JsonField) -> None:
    for key in field.members():
        field.require(key).number(minimum=-100, maximum=100)


def _check_metadata(field: JsonField) -> None:
    for key in field.members():
        field.require(key).text(max_chars=512)


# Members that change nothing here, and what their values must be.
CHECKS: dict[str, Callable[[JsonField], object]] = {
    "frequency_penalty": lambda field: field.number(minimum=-2, maximum=2),
    "logit_bias": _check_probability_bias,
    "logprobs": JsonField.flag,
    "metadata": _check_metadata,
    "n": lambda field: field.integer(minimum=1, maximum=1),
    "presence_penalty": lambda field: field.number(minimum=-2, maximum=2),
    "prompt_cache_key": JsonField.text,
    "reasoning_effort": lambda field: field.choice({"none", "minimal", "low", "medium", "high"}),
    "safety_identifier": JsonField.text,
    "seed": JsonField.integer,
    "service_tier": lambda field: field.choice({"auto", "default", "flex", "priority"}),
    "stop": _check_stop,
    "store": JsonField.flag,
    "temperature": lambda field: field.number(minimum=0, maximum=2),
    "top_logprobs": lambda field: field.integer(minimum=0, maximum=20),
    "top_p": lambda field: field.number(minimum=0, maximum=1),
    "user": JsonField.text,
    "verbosity": lambda field: field.choice({"low", "medium", "high"}),
}
KNOWN_KEYS = frozenset(CHECKS) | {
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "model",
    "parallel_tool_calls",
    "response_format",
    "stream",
    "stream_options",
    "tool_choice",
    "tools",
}
