"""Objects in what models wrote."""

import pytest

from workers.model.json_objects import find_objects


@pytest.mark.parametrize(
    ("text", "objects"),
    [
        ("", []),
        ("no object at all", []),
        ('{"a": 1}', [{"a": 1}]),
        ('{"a": {"b": 1}}', [{"a": {"b": 1}}]),
        ('{"a": 1} {"a": 2}', [{"a": 1}, {"a": 2}]),
        ('first {"a": 1}, then {"a": 2} and so on', [{"a": 1}, {"a": 2}]),
        ('[{"a": 1}, {"a": 2}]', [{"a": 1}, {"a": 2}]),
        ('The set {x} and {"a": 1}', [{"a": 1}]),
        ('{"a": [{"b": 1},],}', [{"a": [{"b": 1}]}]),
        ('"{\\"a\\": 1}"', [{"a": 1}]),
        ('"only a text"', []),
        ("{" * 5_000 + '"a": 1', [{"a": 1}]),
        ('{"a": ' * 5_000, []),
    ],
)
def test_objects_are_found_in_order(text: str, objects: list[object]) -> None:
    assert list(find_objects(text)) == objects


def test_object_that_was_cut_off_is_not_completed() -> None:
    text = '{"a": 1} {"b": {"c": 2}, "d": '
    assert list(find_objects(text, is_complete=False)) == [{"a": 1}]
    assert list(find_objects(text)) == [{"a": 1}, {"b": {"c": 2}, "d": ""}]
