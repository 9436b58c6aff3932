import json

import pytest

from workers.context.estimate import (
    estimate_content,
    estimate_message,
    estimate_messages,
    estimate_tokens,
    estimate_tools,
)
from workers.context.messages import ImagePart, Message, TextPart, ToolCall
from workers.model.values import ToolSchema


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("hi", 1),
        ("漢", 1),
        ("a" * 8, 2),
        ("a" * 400, 100),
        ("漢" * 10, 6),
        ("漢" * 36, 24),
        ("漢" * 100, 66),
        ("a" * 10 + "漢" * 4, 5),
        ("a" * 14 + "漢" * 5, 6),
        ("é" * 3, 2),
        ("🙂" * 3, 2),
        ("\ud800" * 3, 2),
        ("\0" * 8, 2),
    ],
)
def test_text(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_mixed_text_counts_every_character_once() -> None:
    text = "abc漢\ud800é\0🙂" * 12
    assert estimate_tokens(text) == (12 * 4 * 3 + 12 * 4 * 8) // 12


def test_content_without_known_parts_is_nothing() -> None:
    assert estimate_content(()) == 0
    assert estimate_content(None) == 0


def test_image_counts_whatever_its_data() -> None:
    image = ImagePart(url="data:image/png;base64," + "A" * 1_000_000)
    assert estimate_content((TextPart(text="a" * 40), image)) == 775


def test_message_adds_its_frame() -> None:
    assert estimate_message(Message(role="user", content="a" * 8)) == 6
    assert estimate_message(Message(role="assistant", content=None)) == 4


def test_tool_calls_count() -> None:
    call = ToolCall(id="1", name="a" * 8, arguments="b" * 40)
    message = Message(role="assistant", content=None, tool_calls=(call, call))
    assert estimate_message(message) == 4 + 2 * (2 + 10)


def test_messages_are_added_up() -> None:
    message = Message(role="user", content="a" * 8)
    assert estimate_messages([]) == 0
    assert estimate_messages([message, message]) == 12


def test_tools_count_as_the_json_that_is_sent() -> None:
    schema = ToolSchema(name="look", description="Schau 漢字\ud800", parameters={"type": "object"})
    text = json.dumps(schema.to_wire(), ensure_ascii=False, separators=(",", ":"))
    assert estimate_tools([]) == 0
    assert estimate_tools([schema, schema]) == 2 * estimate_tokens(text)


def test_ten_million_characters_are_counted() -> None:
    assert estimate_tokens("a" * 10_000_000) == 2_500_000
    assert estimate_tokens("漢" * 10_000_000) == 6_666_666
