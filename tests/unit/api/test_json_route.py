import json

import pytest

from api.json_route import parse_json


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{} {}",
        b"\xff\xfe\xfd",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b"[" * 100_000 + b"]" * 100_000,
        b"1" * 5_000,
    ],
)
def test_what_is_not_json_is_one_kind_of_error(body: bytes) -> None:
    with pytest.raises(json.JSONDecodeError):
        parse_json(body)


def test_json_is_parsed() -> None:
    assert parse_json('{"a": [1, "ž"]}'.encode()) == {"a": [1, "ž"]}
