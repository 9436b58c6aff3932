import base64
from datetime import UTC, datetime

import pytest

from api.cursors import decode_cursor, encode_cursor
from shared.errors import InvalidInputError
from shared.ids import new_conversation_id
from shared.repositories.conversations import ConversationView


def test_cursor_keeps_the_place_in_the_list() -> None:
    moment = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
    place = ConversationView(
        id=new_conversation_id(),
        turn_count=3,
        metadata={},
        created_at=moment,
        updated_at=moment,
    )
    found = decode_cursor(encode_cursor(place))
    assert (found.id, found.updated_at) == (place.id, place.updated_at)


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "ž",
        "!!!!",
        *(base64.b64encode(text).decode() for text in (b"a b", b"\xff", b"1 2")),
    ],
)
def test_other_text_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidInputError):
        decode_cursor(cursor)


def test_nul_in_a_cursor_is_refused() -> None:
    text = b"2026-01-31T12:00:00+00:00 conv\0"
    with pytest.raises(InvalidInputError):
        decode_cursor(base64.b64encode(text).decode())
