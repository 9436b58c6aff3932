"""Hearing of the end before the HTTP server waits for its connections to close."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def on_exit_signal(leave: Callable[[], object]) -> Iterator[None]:
    """Call `leave` when the process is asked to end, then do what was to be done before.

    The server ends the application only once all connections are closed, and open event streams
    would keep them open. Outside of the main thread nothing is heard.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = {number: signal.getsignal(number) for number in SIGNALS}

    def hear(number: int, frame: FrameType | None) -> None:
        leave()
        handler = earlier[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number in SIGNALS:
        signal.signal(number, hear)
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
