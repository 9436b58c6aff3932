"""The messages of a request: values, and the rules that the real API holds them to.

A tool message answers a call of the assistant message before it; all calls of an assistant
message are answered right after it, each once.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from demo.chat_images import parse_image
from demo.json_field import JsonField
from demo.refusal import Refusal, invalid_type, invalid_value

Role = Literal["system", "developer", "user", "assistant", "tool"]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
PARTICIPANT = re.compile(r"[^\s<|\\/>]{1,64}")
MAX_ID_CHARS = 40

# Members of each role's messages besides role and content.
EXTRA_KEYS: dict[str, frozenset[str]] = {
    "system": frozenset({"name"}),
    "developer": frozenset({"name"}),
    "user": frozenset({"name"}),
    "assistant": frozenset({"name", "tool_calls", "refusal"}),
    "tool": frozenset({"tool_call_id"}),
}
# Types of the parts that each role's content may have.
PART_TYPES: dict[str, frozenset[str]] = {
    "system": frozenset({"text"}),
    "developer": frozenset({"text"}),
    "user": frozenset({"text", "image_url"}),
    "assistant": frozenset({"text", "refusal"}),
    "tool": frozenset({"text"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a message: text (also of a refusal), or the URL of an image."""

    type: str
    text: str = ""
    image_url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallInHistory:
    """A tool call that an earlier answer asked for; `arguments` is text as it was sent."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One message of a request."""

    role: Role
    content: str | tuple[Part, ...] | None = None
    tool_calls: tuple[CallInHistory, ...] = ()
    # Set on tool messages only.
    tool_call_id: str = ""

    @property
    def text(self) -> str:
        """All text of the message, parts joined by a blank line."""
        if isinstance(self.content, str):
            return self.content
        return "\n\n".join(part.text for part in self.content or () if part.text)

    @property
    def images(self) -> int:
        """Number of images."""
        if isinstance(self.content, str):
            return 0
        return sum(bool(part.image_url) for part in self.content or ())


def parse_messages(field: JsonField) -> tuple[ChatMessage, ...]:
    """Return the messages in order. Raises Refusal if one of them, or their order, is not allowed.

    A message without any content is refused for every role, as the strictest providers do.
    """
    messages = tuple(_parse_message(item) for item in field.items())
    _check_calls_answered(messages, field.path)
    return messages


def _parse_message(field: JsonField) -> ChatMessage:
    role = field.require("role").choice(EXTRA_KEYS)
    field.check_keys({"role", "content"} | EXTRA_KEYS[role])
    if name := field.get_set("name"):
        name.text(pattern=PARTICIPANT)
    if refusal := field.get_set("refusal"):
        refusal.text()
    calls = field.get("tool_calls")
    tool_calls = _parse_calls(calls) if calls else ()
    return ChatMessage(
        role=cast("Role", role),
        content=_parse_content(field, role, is_optional=bool(tool_calls)),
        tool_calls=tool_calls,
        tool_call_id=field.require("tool_call_id").filled_text() if role == "tool" else "",
    )


def _parse_content(
    message: JsonField, role: str, *, is_optional: bool
) -> str | tuple[Part, ...] | None:
    content = message.get("content") if is_optional else message.require("content")
    if is_optional and (content is None or content.is_null):
        return None
    if content is None or content.is_null:
        expected = "a string" if role == "assistant" else "one of a string or array of objects"
        raise invalid_type(f"{message.path}.content", expected, None)
    if content.is_text:
        return content.text() if is_optional else content.filled_text()
    if not isinstance(content.value, list):
        raise invalid_type(content.path, "one of a string or array of objects", content.value)
    return tuple(_parse_part(item, role) for item in content.items())


def _parse_part(field: JsonField, role: str) -> Part:
    kind = field.require("type").choice(PART_TYPES[role])
    field.check_keys({"type", kind})
    content = field.require(kind)
    if kind == "image_url":
        return Part(type=kind, image_url=parse_image(content))
    return Part(type=kind, text=content.filled_text())


def _parse_calls(field: JsonField) -> tuple[CallInHistory, ...]:
    calls = tuple(_parse_call(item) for item in field.items())
    if len({call.id for call in calls}) < len(calls):
        raise invalid_value(field.path, "each tool call must have an id of its own")
    return calls


def _parse_call(field: JsonField) -> CallInHistory:
    field.check_keys({"id", "type", "function"})
    call_id = field.require("id")
    call_id.filled_text()
    field.require("type").choice({"function"})
    function = field.require("function")
    function.check_keys({"name", "arguments"})
    return CallInHistory(
        id=call_id.text(max_chars=MAX_ID_CHARS),
        name=function.require("name").text(pattern=NAME),
        arguments=function.require("arguments").text(),
    )


def _check_calls_answered(messages: Sequence[ChatMessage], path: str) -> None:
    # Calls of the last assistant message that have no answer yet.
    asked: set[str] = set()
    waiting: dict[str, None] = {}
    for index, message in enumerate(messages):
        place = f"{path}[{index}]"
        if message.role == "tool":
            _check_answer(message.tool_call_id, asked, waiting, place)
            del waiting[message.tool_call_id]
            continue
        _check_none_waiting(waiting, place)
        asked = {call.id for call in message.tool_calls}
        waiting = dict.fromkeys(call.id for call in message.tool_calls)
    _check_none_waiting(waiting, path)


def _check_answer(call_id: str, asked: set[str], waiting: dict[str, None], place: str) -> None:
    if call_id in waiting:
        return
    if not asked:
        raise Refusal(
            f"Invalid parameter: messages with role 'tool' must be a response to a preceeding"
            f" message with 'tool_calls' ({place}).",
            param=f"{place}.role",
        )
    problem = "is answered twice" if call_id in asked else "is not in the preceding 'tool_calls'"
    raise Refusal(
        f"Invalid parameter: 'tool_call_id' of '{call_id}' {problem}.",
        param=f"{place}.tool_call_id",
    )


def _check_none_waiting(waiting: dict[str, None], place: str) -> None:
    if waiting:
        raise Refusal(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to"
            " each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            + ", ".join(waiting),
            param=place,
        )
