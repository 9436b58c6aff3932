"""Token estimates without a tokenizer: an ASCII character is 1/4 of a token, any other 2/3.

The estimate is a heuristic: it is a third too high for some languages and half too low for some
machine-made text. Nothing here depends on the model.
"""

import json
from collections.abc import Iterable, Sequence

from workers.context.messages import Message, Part, TextPart
from workers.model.values import ToolSchema

IMAGE_TOKENS = 765
# Role marker and delimiters.
MESSAGE_TOKENS = 4


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text: rounded down, 0 only if it is empty."""
    if not text:
        return 0
    length = len(text)
    # Both are single passes in C; `ignore` also drops lone surrogates.
    ascii_chars = length if text.isascii() else len(text.encode("ascii", "ignore"))
    return (3 * ascii_chars + 8 * (length - ascii_chars)) // 12 or 1


def estimate_content(content: str | Sequence[Part] | None) -> int:
    """Estimate the tokens of a message's content: its texts and its images."""
    if isinstance(content, str):
        return estimate_tokens(content)
    return sum(
        estimate_tokens(part.text) if isinstance(part, TextPart) else IMAGE_TOKENS
        for part in content or ()
    )


def estimate_message(message: Message) -> int:
    """Estimate the tokens of a message, its tool calls included."""
    tokens = MESSAGE_TOKENS + estimate_content(message.content)
    for call in message.tool_calls:
        tokens += estimate_tokens(call.name) + estimate_tokens(call.arguments)
    return tokens


def estimate_messages(messages: Iterable[Message]) -> int:
    """Estimate the tokens of messages together."""
    return sum(map(estimate_message, messages))


def estimate_tools(schemas: Iterable[ToolSchema]) -> int:
    """Estimate the tokens of tool schemas, as the JSON that is sent."""
    return sum(estimate_tokens(tool_text(schema)) for schema in schemas)


def tool_text(schema: ToolSchema) -> str:
    """Return a tool schema as the JSON that is sent."""
    return json.dumps(schema.to_wire(), ensure_ascii=False, separators=(",", ":"))
