"""A process's own limits, and its one answer: what `LimitedProcess` starts ends in `serve`.

Little is imported here, so that such a process starts in a few hundredths of a second.
"""

import contextlib
import json
import resource
import sys
from collections.abc import Callable

MAX_CPU_S = 3
MAX_MEMORY_BYTES = 512 * 1024 * 1024
# More than a tool result may hold.
MAX_RESULT_CHARS = 60_000


class RequestError(Exception):
    """The request is wrong; the message is for the model."""


def serve(answer: Callable[[dict[str, str]], str]) -> None:
    """Answer the request on standard input on standard output; die at the limits.

    answer: takes the request's texts by name. What it raises as RequestError is told.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S))
    # Not every system lets memory be limited; time is limited anyway.
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    try:
        said = {"result": answer(json.load(sys.stdin))[:MAX_RESULT_CHARS]}
    except RequestError as error:
        said = {"error": str(error)}
    json.dump(said, sys.stdout)
