"""The sizes that providers state when they refuse a request for its length, each in its words."""

import re
from dataclasses import dataclass

_NUMBER = r"([\d,_]{3,})"
_WINDOW = re.compile(
    r"(?:maximum (?:context|prompt|model) length (?:is|of)|context size \(|tokens > "
    r"|\+ [\d,_]+ > |tokens allowed \(|should be \[1, |context (?:window|length|limit) (?:of|is))"
    rf"\s*{_NUMBER}",
    re.IGNORECASE,
)
_PROMPT = re.compile(
    rf"{_NUMBER} (?:tokens )?in (?:the|your) (?:messages|prompt|input)"
    rf"|resulted in {_NUMBER}|too long: {_NUMBER}|token count \({_NUMBER}|request \({_NUMBER}"
    rf"|limit: {_NUMBER} \+|passed {_NUMBER} input",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class StatedSizes:
    """What a refusal says, in tokens; None is not said."""

    prompt: int | None
    window: int | None


def read_sizes(message: str) -> StatedSizes:
    """Read the sizes from a provider's sentence."""
    return StatedSizes(prompt=_find(_PROMPT, message), window=_find(_WINDOW, message))


def _find(pattern: re.Pattern[str], message: str) -> int | None:
    found = pattern.search(message)
    if found is None:
        return None
    digits = re.sub(r"\D", "", next(filter(None, found.groups())))
    return int(digits) if digits else None
