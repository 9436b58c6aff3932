"""Text and JSON that clients send, held to what both stores and the event streams can keep."""

import math
from typing import Annotated

import orjson
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from shared.text import check_text

MAX_METADATA_BYTES = 16_384
MAX_METADATA_DEPTH = 32


def check_content(text: str) -> str:
    """Refuse text without anything to read."""
    if not text.strip():
        raise PydanticCustomError("empty_text", "must not be empty: send some text")
    return check_text(text)


def check_metadata(value: dict[str, object]) -> dict[str, object]:
    """Refuse metadata that is too large, too deep, or holds what cannot be stored."""
    _check_nesting(value)
    try:
        size = len(orjson.dumps(value))
    except orjson.JSONEncodeError:
        raise PydanticCustomError(
            "metadata_values",
            "must hold whole numbers of at most 64 bits: send larger ones as text",
        ) from None
    if size > MAX_METADATA_BYTES:
        raise PydanticCustomError(
            "metadata_size",
            "must be at most {limit} bytes of JSON: send less",
            {"limit": MAX_METADATA_BYTES},
        )
    return value


Content = Annotated[str, AfterValidator(check_content)]
Metadata = Annotated[dict[str, object], AfterValidator(check_metadata)]
# Of a model or a tool.
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(check_text)]


def _check_nesting(value: object) -> None:
    level: list[object] = [value]
    for _ in range(MAX_METADATA_DEPTH):
        if not level:
            return
        for item in level:
            _check_scalar(item)
        level = [child for item in level for child in _children(item)]
    raise PydanticCustomError(
        "metadata_depth",
        "must be nested at most {limit} levels deep: send a flatter object",
        {"limit": MAX_METADATA_DEPTH},
    )


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return value if isinstance(value, list) else []


def _check_scalar(value: object) -> None:
    if isinstance(value, str):
        check_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise PydanticCustomError("metadata_number", "must not hold infinite numbers")
