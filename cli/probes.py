"""Whether a child is ready for its work, asked from outside. Each answers within a few seconds."""

import http.client
import os
import socket
from collections.abc import Callable
from pathlib import Path

from shared.ready_file import PATTERN, read_pid, ready_file

TIMEOUT_S = 3.0

Probe = Callable[[int], bool]


def api_is_ready(host: str, port: int) -> Probe:
    """Return whether `GET /readyz` answers 200: the API, its database and its Redis are there."""

    def probe(_pid: int) -> bool:
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    return probe


def port_is_open(host: str, port: int) -> Probe:
    """Return whether something accepts connections there."""

    def probe(_pid: int) -> bool:
        try:
            socket.create_connection((host, port), timeout=TIMEOUT_S).close()
        except OSError:
            return False
        return True

    return probe


def worker_is_ready(data_dir: Path) -> Probe:
    """Return whether the worker says that it takes turns.

    It makes a file named after its process once Celery consumes from the broker and its own parts
    run: no message has to be read from its log, and the broker has no work with the question.
    """

    def probe(pid: int) -> bool:
        return ready_file(data_dir, pid).exists()

    return probe


def forget_workers(data_dir: Path) -> None:
    """Remove what killed workers left: a new one may get the id of an old one."""
    for path in data_dir.glob(PATTERN):
        try:
            os.kill(read_pid(path), 0)
        except (ValueError, ProcessLookupError):
            path.unlink(missing_ok=True)
        except PermissionError:
            continue  # alive, another user's
