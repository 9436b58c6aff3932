import pytest

from shared.errors import ModelStreamError
from workers.model.json_values import as_count, parse_object


def test_object_is_parsed() -> None:
    assert parse_object('{"a": "é"}'.encode()) == {"a": "é"}


def test_half_characters_are_taken() -> None:
    assert parse_object(rb'{"a": "\ud83d"}') == {"a": "\ud83d"}


@pytest.mark.parametrize("data", [b"", b'{"a":', b"{} {}", b'{"a": "\xff"}', b"[1]", b"1", b"nul"])
def test_anything_else_cannot_be_read(data: bytes) -> None:
    with pytest.raises(ModelStreamError, match="could not be read"):
        parse_object(data)


@pytest.mark.parametrize(("value", "count"), [(3, 3), (3.0, 3), (None, 0), (-1, 0), ("3", 0)])
def test_counts_that_are_none_are_zero(value: object, count: int) -> None:
    assert as_count(value) == count
