import json

import pytest

from shared.events import ARGUMENTS_CHARS
from shared.snapshot import parse_arguments

LONG = json.dumps({"text": "x" * ARGUMENTS_CHARS})


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"a": [1]}', {"a": [1]}),
        ("{not json", "{not json"),
        (LONG, LONG[:ARGUMENTS_CHARS]),
        (json.dumps("x" * (ARGUMENTS_CHARS - 2)), "x" * (ARGUMENTS_CHARS - 2)),
    ],
)
def test_arguments_are_shown_within_bounds(arguments: str, shown: object) -> None:
    assert parse_arguments(arguments) == shown
