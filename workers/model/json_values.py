"""JSON of unknown shape, read into what is expected, or refused as unreadable."""

import json

import orjson

from shared.errors import ModelStreamError


def parse_object(data: bytes) -> dict[str, object]:
    """Parse a JSON object. Raises ModelStreamError for anything else."""
    try:
        return as_object(_loads(data))
    except ValueError as error:
        raise ModelStreamError(
            "The model's answer could not be read: a chunk is no valid JSON",
        ) from error


def as_object(value: object) -> dict[str, object]:
    """Return a JSON object, {} for null. Raises ModelStreamError for anything else."""
    if isinstance(value, dict):
        return value
    if value is None:
        return {}
    raise _unexpected("an object", value)


def as_list(value: object) -> list[object]:
    """Return a JSON array, [] for null. Raises ModelStreamError for anything else."""
    if isinstance(value, list):
        return value
    if value is None:
        return []
    raise _unexpected("an array", value)


def as_text(value: object) -> str:
    """Return a JSON string, "" for null. Raises ModelStreamError for anything else."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    raise _unexpected("a string", value)


def as_count(value: object) -> int:
    """Return a number of tokens; anything else is 0."""
    return int(value) if isinstance(value, int | float) and value > 0 else 0


def _loads(data: bytes) -> object:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        # The standard parser is slow but takes half characters, which some servers send.
        return json.loads(data)


def _unexpected(wanted: str, value: object) -> ModelStreamError:
    return ModelStreamError(
        f"The model's answer could not be read: expected {wanted}, not {type(value).__name__}",
    )
