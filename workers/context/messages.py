"""Messages as immutable values, in the shape of the chat-completions protocol.

A *round* is an assistant message with tool calls and all their results; nothing may split it.
"""

from dataclasses import dataclass
from typing import Literal

from shared.ids import FileId

Role = Literal["system", "user", "assistant", "tool"]
Origin = Literal["instructions", "summary", "history", "query", "injection", "loop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """A piece of text in a message of several parts."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePart:
    """An image in a message; `url` may be a data URL."""

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """An image whose bytes are still to be read; without them it is sent as a sentence."""

    file_id: FileId
    mime_type: str


Part = TextPart | ImagePart | StoredImage


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call as the model asked for it; `arguments` is the raw JSON text it sent."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a request."""

    role: Role
    content: str | tuple[Part, ...] | None
    # Asked for by an assistant message; each has one tool message with its id right after.
    tool_calls: tuple[ToolCall, ...] = ()
    # Set on tool messages only.
    tool_call_id: str | None = None
    # Survives compaction word for word.
    pinned: bool = False
    # Where the message came from; decides what is compacted first.
    origin: Origin = "loop"
    # Its place in the conversation, for stored messages.
    position: int | None = None

    @property
    def text(self) -> str:
        """All text of the message, parts joined by a blank line."""
        if isinstance(self.content, str):
            return self.content
        parts = self.content or ()
        return "\n\n".join(part.text for part in parts if isinstance(part, TextPart))

    def to_wire(self) -> dict[str, object]:
        """Return the message as the chat-completions protocol spells it."""
        wire: dict[str, object] = {"role": self.role, "content": _wire_content(self.content)}
        if self.tool_calls:
            wire["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.tool_calls
            ]
        if self.tool_call_id is not None:
            wire["tool_call_id"] = self.tool_call_id
        return wire


def _wire_content(content: str | tuple[Part, ...] | None) -> object:
    if content is None or isinstance(content, str):
        return content
    return [_wire_part(part) for part in content]


def _wire_part(part: Part) -> dict[str, object]:
    match part:
        case TextPart(text=text):
            return {"type": "text", "text": text}
        case ImagePart(url=url):
            return {"type": "image_url", "image_url": {"url": url}}
        case StoredImage(file_id=file_id):
            return {"type": "text", "text": f"[Image {file_id} is no longer available]"}
