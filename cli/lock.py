"""One `turnmill up` per data directory: a lock that ends with its process, however that ends."""

import contextlib
import errno
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path

from shared.errors import ConfigurationError

LOCK_NAME = "lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a data directory; what the lock file says."""

    pid: int
    host: str
    # UTC, ISO 8601 to the second.
    started_at: str
    # Of the API.
    url: str

    @classmethod
    def here(cls, url: str) -> "Holder":
        """Return this process as the holder."""
        return cls(
            pid=os.getpid(),
            host=socket.gethostname(),
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            url=url,
        )

    def describe(self) -> str:
        """Return the holder for a sentence."""
        return f"process {self.pid} on {self.host} since {self.started_at}, API at {self.url}"


@contextlib.contextmanager
def hold_data_dir(path: Path, *, url: str) -> Iterator[None]:
    """Make the directory if there is none, and hold it for as long as the context lasts.

    url: of the API, for whoever comes second.
    Raises ConfigurationError if another process holds it or it cannot be written.
    """
    with _open(path) as file:
        _lock(file, path)
        _write(file, json.dumps(asdict(Holder.here(url))))
        try:
            yield
        finally:
            _write(file, "")


def make_data_dir(path: Path) -> None:
    """Make the directory if there is none. Raises ConfigurationError if it cannot be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise _unwritable(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def _open(path: Path) -> TextIOWrapper:
    make_data_dir(path)
    try:
        return (path / LOCK_NAME).open("a+", encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from error


def _lock(file: TextIOWrapper, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigurationError(
            f"The data directory {path} is held by another `turnmill up` ({_read_holder(file)}):"
            " stop that one, or choose another directory with TURNMILL_DATA_DIR",
        ) from error
    except OSError as error:
        raise ConfigurationError(
            f"The data directory {path} cannot be locked ({error.strerror}): choose one on a"
            " local disk with TURNMILL_DATA_DIR",
        ) from error


def _write(file: TextIOWrapper, text: str) -> None:
    # The file itself stays: a lock on a file that was removed meanwhile would keep nobody out.
    file.truncate(0)
    file.write(text)
    file.flush()


def _read_holder(file: TextIOWrapper) -> str:
    file.seek(0)
    try:
        return Holder(**json.loads(file.read())).describe()
    except (ValueError, TypeError):
        return "which is just starting or stopping"


def _unwritable(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"The data directory {path} cannot be written ({error.strerror}): give it to this user,"
        " or choose another with TURNMILL_DATA_DIR",
    )
