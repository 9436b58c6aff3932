"""JSON objects in what a model wrote: as they are, or repaired if they nearly are."""

import json
import re
from collections.abc import Iterator

from json_repair import repair_json

# How an object begins, right or nearly so: a brace in prose does not.
BEGINS = re.compile(r"""\{(?=\s*(?:["'“”}]|[\w-]+\s*:))""")
_DECODER = json.JSONDecoder(strict=False)


def find_objects(text: str, *, is_complete: bool = True) -> Iterator[dict[str, object]]:
    """Yield the objects in a text, in order, those inside of others left out.

    The first that is no valid JSON is repaired (fences, commas, quotes, comments, an end that is
    missing) and is the last one yielded.
    is_complete: whether the model wrote to its end; an object that was cut off is not completed
    by guessing.
    """
    at = 0
    while begin := BEGINS.search(text, at):
        try:
            found, at = _DECODER.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            if is_complete:
                yield from _repair(text[begin.start() :])
            return
        yield found
    if at == 0 and text.lstrip().startswith('"'):
        yield from _find_in_string(text, is_complete=is_complete)


def _find_in_string(text: str, *, is_complete: bool) -> Iterator[dict[str, object]]:
    """Yield the objects in JSON that is itself a JSON string."""
    try:
        inner = json.loads(text)
    except ValueError:
        return
    if isinstance(inner, str) and inner != text:
        yield from find_objects(inner, is_complete=is_complete)


def _repair(text: str) -> Iterator[dict[str, object]]:
    try:
        found = repair_json(text, return_objects=True)
    except (ValueError, RecursionError):
        return
    for item in found if isinstance(found, list) else [found]:
        if isinstance(item, dict) and item:
            yield item
