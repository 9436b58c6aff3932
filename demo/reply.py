"""What to answer and how, as immutable values: text, tool calls, thoughts, delays, faults."""

import enum
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

# A word with the space after it; or up to three characters of scripts that set no spaces.
PIECE = re.compile(r"[\u3000-\u9fff\uff00-\uffef]{1,3}\s*|[^\s\u3000-\u9fff\uff00-\uffef]+\s*|\s+")


class FaultKind(enum.StrEnum):
    """A way in which an answer fails."""

    # An HTTP status in place of the answer.
    HTTP_STATUS = "http_status"
    # The connection closes before the first byte.
    DISCONNECT = "disconnect"
    # The connection closes in the middle of the answer.
    CUT = "cut"
    # The answer ends properly for HTTP, but without its finish reason and end mark.
    TRUNCATE = "truncate"
    # No more bytes come, and the connection stays open.
    STALL = "stall"
    # A chunk is no JSON; the answer goes on after it.
    CORRUPT_CHUNK = "corrupt_chunk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong with an answer."""

    kind: FaultKind
    # Chunks sent before it happens, the one with the role counted; at most all of the answer's.
    after_chunks: int = 0
    # The others are for HTTP_STATUS only.
    status: int = 500
    # Value of the header: seconds, or a date; None sends no such header.
    retry_after: str | None = None
    # None: an error in OpenAI's shape.
    body: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call to ask for. `arguments` as text is sent as it is, valid JSON or not."""

    name: str
    arguments: str | Mapping[str, object] = "{}"
    # None: a new one is made.
    id: str | None = None

    @property
    def arguments_json(self) -> str:
        """The arguments as they are sent."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of a call as they are reported. Cached ones are part of the prompt's."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer: thoughts first, then text, then tool calls.

    text, reasoning: a string is streamed word by word, a tuple piece by piece.
    """

    text: str | tuple[str, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | tuple[str, ...] = ()
    # None: "tool_calls" if there are any, else "stop".
    finish_reason: str | None = None
    # Most characters of arguments in one chunk.
    arguments_chunk_chars: int = 12
    # Some servers number no call: each is the one with index 0.
    numbers_calls: bool = True
    first_byte_s: float = 0.0
    between_chunks_s: float = 0.0
    fault: Fault | None = None
    # None: as counted.
    usage: Usage | None = None
    # Some servers report no usage even when asked.
    reports_usage: bool = True

    @property
    def text_pieces(self) -> tuple[str, ...]:
        """The text as it is streamed."""
        return _split(self.text)

    @property
    def reasoning_pieces(self) -> tuple[str, ...]:
        """The thoughts as they are streamed."""
        return _split(self.reasoning)

    @property
    def final_reason(self) -> str:
        """The finish reason that is sent."""
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")


def _split(text: str | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(PIECE.findall(text)) if isinstance(text, str) else text
