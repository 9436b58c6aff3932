"""Closing a client's connection on purpose, which ASGI has no word for."""

from collections.abc import Callable, MutableMapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

EXTENSION = "turnmill.close"


class ClosableProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with a way to close the connection in each request's scope."""

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        # What was written before is still sent.
        self.scope["extensions"] = {EXTENSION: {"close": self.transport.close}}


def connection_closer(scope: MutableMapping[str, Any]) -> Callable[[], None]:
    """Return what closes the connection of a request.

    Raises RuntimeError if the server does not run with ClosableProtocol.
    """
    extension = scope.get("extensions", {}).get(EXTENSION)
    if extension is None:
        raise RuntimeError("run the server with http=ClosableProtocol")
    close: Callable[[], None] = extension["close"]
    return close
