"""Which beginnings of requests were seen before: what a provider would bill as cached."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator

from demo.protocol import ChatRequest
from demo.token_count import count_message, count_tools

MAX_PREFIXES = 20_000


class PromptCache:
    """The beginnings of earlier requests, each a model, its tools and some first messages.

    Unlike real ones it has no smallest size, so that short requests show hits too.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def add(self, request: ChatRequest) -> int:
        """Take in a request and return how many of its first tokens were seen before."""
        cached = 0
        for digest, tokens in _prefixes(request):
            if digest in self._seen:
                cached = tokens
            self._seen[digest] = None
            self._seen.move_to_end(digest)
        while len(self._seen) > MAX_PREFIXES:
            self._seen.popitem(last=False)
        return cached


def _prefixes(request: ChatRequest) -> Iterator[tuple[bytes, int]]:
    state = hashlib.blake2b(repr((request.model, request.tools)).encode("utf-8"), digest_size=16)
    tokens = count_tools(request)
    for message in request.messages:
        state.update(repr(message).encode("utf-8"))
        tokens += count_message(message)
        yield state.digest(), tokens
