"""Counting tokens: simple, and the same on every machine.

A text has one token for each four bytes of its UTF-8, begun or full; a message three more; an
image 765; a tool those of its JSON; a request three more, for the answer's beginning.
"""

import json
from collections.abc import Iterable

from demo.chat_messages import ChatMessage
from demo.protocol import ChatRequest

BYTES_PER_TOKEN = 4
TOKENS_PER_MESSAGE = 3
TOKENS_PER_IMAGE = 765
TOKENS_PER_REQUEST = 3


def count_text(text: str) -> int:
    """Return the tokens of a text."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def count_texts(texts: Iterable[str]) -> int:
    """Return the tokens of texts that are counted one by one."""
    return sum(map(count_text, texts))


def count_message(message: ChatMessage) -> int:
    """Return the tokens of one message of a request."""
    calls = (text for call in message.tool_calls for text in (call.name, call.arguments))
    return (
        TOKENS_PER_MESSAGE
        + count_text(message.text)
        + count_texts(calls)
        + TOKENS_PER_IMAGE * message.images
    )


def count_tools(request: ChatRequest) -> int:
    """Return the tokens of the tools that a request offers."""
    return count_texts(json.dumps(tool.wire, ensure_ascii=False) for tool in request.tools)


def count_request(request: ChatRequest) -> int:
    """Return the tokens of a request."""
    return TOKENS_PER_REQUEST + count_tools(request) + sum(map(count_message, request.messages))
