"""Why values from outside are refused, in our own words."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

# By pydantic's type of error; in braces, what the limit is.
SENTENCES: dict[str, str] = {
    "extra_forbidden": "is not a known field: remove it",
    "missing": "is missing: send it",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "is too large a number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be a text",
    "string_unicode": "must be valid Unicode: remove lone surrogates (U+D800 to U+DFFF)",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
    "string_pattern_mismatch": "must match {pattern}",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
}


def explain(item: ErrorDetails | Mapping[str, Any], known: Sequence[str] = ()) -> str:
    """Return what is wrong with a value, to be put after its name.

    item: as pydantic describes it. known: names that could have been meant.
    """
    kind = item["type"]
    if kind == "extra_forbidden" and known:
        name = str(item["loc"][-1])
        if meant := get_close_matches(name, known, n=1):
            return f"is not a known field: did you mean {meant[0]}?"
    limits = {name: _plain(limit) for name, limit in (item.get("ctx") or {}).items()}
    if kind in ("string_too_short", "too_short") and limits["min_length"] == 1:
        return "must not be empty"
    if kind in SENTENCES:
        return SENTENCES[kind].format(**limits)
    message = str(item["msg"]).removeprefix("Value error, ")
    return message.encode("utf-8", "replace").decode()


def explain_all(error: ValidationError, name_of: Callable[[str], str] = str) -> str:
    """Return all that is wrong as one line: each value's name, and why it is refused.

    name_of: returns the name that people know of a field; given "" for the whole.
    """
    return "; ".join(
        f"{name_of('.'.join(map(str, item['loc'])))} {explain(item)}".strip()
        for item in error.errors(include_url=False)
    )


def _plain(limit: object) -> object:
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit
