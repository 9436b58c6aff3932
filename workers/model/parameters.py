"""Parameters of a request that some providers do not know, and how they say so."""

import re
from typing import Literal, Protocol, get_args

from workers.model.values import ModelTarget

# `system`: the role of a message.
Parameter = Literal[
    "tool_choice", "tools", "response_format", "max_tokens", "stream_options", "system"
]
PARAMETERS: tuple[Parameter, ...] = get_args(Parameter)

_UNSUPPORTED = re.compile(
    r"unsupported|not support|n.t support|unknown|unrecogni[sz]ed|unexpected"
    r"|not (permitted|allowed|enabled)|extra (fields|inputs)|requires --",
    re.IGNORECASE,
)
# Whichever is named first is the one that is meant: the rest may say what to use in its place.
_NAMED = re.compile(
    r"(?P<tool_choice>\btool[ _-]choice)"
    r"|(?P<tools>\btool(s\b|[ _-]call|[ _-]us)|\bfunctions?\b)"
    r"|(?P<response_format>\bresponse[ _]format|\bjson_object\b)"
    r"|(?P<max_tokens>\bmax_tokens\b)"
    r"|(?P<stream_options>\bstream_options\b)"
    r"|(?P<system>\bmessages\W+\d+\W+role\b|\bsystem role|\brole\W+system|\b(developer|system)"
    r" (instruction|message|prompt)s?\b)",
    re.IGNORECASE,
)


class Refusals(Protocol):
    """What is known of what providers refuse, kept for all workers."""

    def refused(self, target: ModelTarget) -> frozenset[Parameter]:
        """Return what a model's provider does not know."""

    def learn_refused(self, target: ModelTarget, parameter: Parameter) -> None:
        """Take in that it does not know one more."""


def find_refused(message: str, param: str) -> Parameter | None:
    """Return the parameter that a provider does not know, if that is what its refusal says.

    message: of the refusal. param: the field that it names, or "".
    """
    if not _UNSUPPORTED.search(message):
        return None
    for text in (param, message):
        if found := _NAMED.search(text):
            return next(name for name in PARAMETERS if found[name])
    return None
