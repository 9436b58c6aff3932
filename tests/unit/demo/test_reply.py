"""Pieces, tokens and the prompt cache: what answers and usage are made of."""

# ruff: noqa: RUF001 - letters of other scripts are meant to be what they are

import json

import pytest

from demo.encoding import count_reply
from demo.prompt_cache import PromptCache
from demo.protocol import ChatRequest, parse_request
from demo.reply import Reply, ToolCall
from demo.token_count import count_request, count_text


def request(*texts: str, **extra: object) -> ChatRequest:
    messages = [{"role": "user", "content": text} for text in texts]
    return parse_request(json.dumps({"model": "m", "messages": messages} | extra).encode())


@pytest.mark.parametrize(
    "text",
    ["Hello, big  world!\nNext line ", "現在の日時は 12:00 です。はい。", "你好，世界", "", "  "],
)
def test_pieces_make_up_the_text(text: str) -> None:
    pieces = Reply(text=text).text_pieces

    assert "".join(pieces) == text
    assert all(len(piece.strip()) <= 8 for piece in pieces)


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("four", 1), ("fiver", 2)])
def test_four_bytes_are_a_token(text: str, tokens: int) -> None:
    assert count_text(text) == tokens


def test_tokens_of_a_request_grow_with_messages_tools_and_images() -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    seen = parse_request(
        json.dumps({"model": "m", "messages": [{"role": "user", "content": [image]}]}).encode(),
    )

    assert count_request(request("four")) == 3 + 3 + 1
    assert count_request(request("four", "four")) == 3 + 2 * (3 + 1)
    assert count_request(request("four", tools=[tool])) == 7 + count_text(json.dumps(tool))
    assert count_request(seen) == 3 + 3 + 765


def test_tokens_of_a_reply_hold_thoughts_and_calls() -> None:
    reply = Reply(text="four", reasoning="four", tool_calls=(ToolCall(name="four"),))

    assert count_reply(reply) == 4


def test_cached_tokens_are_those_of_the_longest_known_beginning() -> None:
    cache = PromptCache()

    assert cache.add(request("one", "two")) == 0
    assert cache.add(request("one", "two", "six")) == 8
    assert cache.add(request("one", "new")) == 4
    assert cache.add(request("new", "two")) == 0
