"""The product as it runs: real API and worker processes, which tests may let die in named ways."""

import contextlib
import enum
import os
import signal
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import httpx2

from shared.ready_file import ready_file
from tests.helpers.client import TurnmillClient
from tests.helpers.ports import free_port
from tests.helpers.waiting import wait_until

START_TIMEOUT_S = 30.0
# Above TURNMILL_DRAIN_S below.
STOP_TIMEOUT_S = 20.0
LOG_TAIL_CHARS = 8_000
# What a developer's shell may hold and a test must not see.
FOREIGN_PREFIXES = ("TURNMILL_", "LLM_", "OPENAI_", "REACT_")

DEFAULTS = {
    "LLM_MODEL": "scripted",
    "LLM_API_KEY": "test-key",
    # The shortest lease there is: a lost worker is noticed soon.
    "TURNMILL_LEASE_S": "3",
    "TURNMILL_SWEEP_S": "0.5",
    "TURNMILL_DRAIN_S": "5",
    "TURNMILL_LOG_FORMAT": "json",
}


class Death(enum.Enum):
    """A way in which a process stops working."""

    # Asked to leave: it hands over what it holds.
    TERM = signal.SIGTERM
    # Gone at once.
    KILL = signal.SIGKILL
    # Paused: it does nothing, knows nothing of it, and may come back (`resume`).
    STOP = signal.SIGSTOP


class ProcessDiedError(Exception):
    """A process ended by itself; the message is the end of its log."""


class ProductProcess:
    """One process of the product: `turnmill <command>`."""

    def __init__(
        self,
        name: str,
        command: str,
        *options: str,
        env: Mapping[str, str],
        folder: Path,
    ) -> None:
        self.name = name
        self.log_path = folder / f"{name}.log"
        program = Path(sysconfig.get_path("scripts")) / "turnmill"
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [str(program), command, *options],
                env=dict(env),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended; a paused one is alive."""
        return self._process.poll() is None

    @property
    def log_tail(self) -> str:
        """The end of what the process wrote."""
        text = self.log_path.read_text(encoding="utf-8", errors="replace")
        return text[-LOG_TAIL_CHARS:]

    def die(self, death: Death) -> None:
        """Let the process die; returns when it has ended, or at once if it is only paused."""
        self._process.send_signal(death.value)
        if death is not Death.STOP:
            self.wait()

    def resume(self) -> None:
        """Let a paused process go on."""
        self._process.send_signal(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        """Send a signal and do not wait for what comes of it."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait for the end and return the exit code. Raises TimeoutError with the log's end."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{self.name} has not ended:\n{self.log_tail}") from error

    def check_alive(self) -> None:
        """Raise ProcessDiedError if the process has ended."""
        if not self.is_alive:
            code = self._process.returncode
            raise ProcessDiedError(f"{self.name} ended with {code}:\n{self.log_tail}")

    def clean_up(self) -> None:
        """End the process and whatever it started, however it is."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(STOP_TIMEOUT_S)


class Product:
    """The API on a port that stays the same over restarts, and any number of workers.

    folder: where data and logs go. environment: further variables, or other values for the
    ones set here. Nothing runs until it is started; `stop_all` ends everything.
    """

    def __init__(
        self,
        folder: Path,
        *,
        database_url: str,
        redis_url: str,
        model_base_url: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.data_dir = folder / "data"
        self.data_dir.mkdir()
        self.environment = (
            _clean_environment()
            | DEFAULTS
            | {
                "TURNMILL_DATA_DIR": str(self.data_dir),
                "TURNMILL_DATABASE_URL": database_url,
                "TURNMILL_REDIS_URL": redis_url,
                "TURNMILL_PORT": str(self.port),
                "LLM_BASE_URL": model_base_url,
            }
            | dict(environment or {})
        )
        # Every process ever started, dead ones too.
        self.processes: list[ProductProcess] = []
        self._folder = folder

    def start_api(self, environment: Mapping[str, str] | None = None) -> ProductProcess:
        """Start the API and wait until it is ready. environment: for this process only."""
        process = self._start("api", "api", environment)
        wait_until(
            lambda: self._is_api_ready(process),
            timeout_s=START_TIMEOUT_S,
            message=lambda: f"the API is not ready:\n{process.log_tail}",
        )
        return process

    def start_worker(
        self,
        name: str = "worker",
        *,
        slots: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> ProductProcess:
        """Start a worker process and wait until it is ready. slots: turns it holds at once."""
        variables = {} if slots is None else {"TURNMILL_WORKER_SLOTS": str(slots)}
        process = self._start(name, "worker", variables | dict(environment or {}))
        wait_until(
            lambda: self._is_worker_ready(process),
            timeout_s=START_TIMEOUT_S,
            message=lambda: f"{name} is not ready:\n{process.log_tail}",
        )
        return process

    def start_tools_worker(self, name: str = "tools") -> ProductProcess:
        """Start a worker for the tools queue and wait until it is ready."""
        process = self._start(name, "worker", None, "--queues", "tools")
        wait_until(
            lambda: self._is_worker_ready(process),
            timeout_s=START_TIMEOUT_S,
            message=lambda: f"{name} is not ready:\n{process.log_tail}",
        )
        return process

    def client(self) -> TurnmillClient:
        """Return a client of the API; the caller closes it."""
        return TurnmillClient(self.url)

    def stop_all(self, death: Death = Death.TERM) -> None:
        """End all processes, and by force those that do not end in time."""
        alive = [process for process in self.processes if process.is_alive]
        try:
            for process in alive:
                process.resume()
                process.send(death.value)
            for process in alive:
                process.wait()
        finally:
            for process in alive:
                process.clean_up()

    def logs(self) -> dict[str, str]:
        """Return the end of each process's log, by the process's name."""
        return {process.name: process.log_tail for process in self.processes}

    def _start(
        self,
        name: str,
        command: str,
        environment: Mapping[str, str] | None,
        *options: str,
    ) -> ProductProcess:
        env = self.environment | dict(environment or {})
        process = ProductProcess(name, command, *options, env=env, folder=self._folder)
        self.processes.append(process)
        return process

    def _is_api_ready(self, process: ProductProcess) -> bool:
        process.check_alive()
        with contextlib.suppress(httpx2.TransportError):
            response = httpx2.get(f"{self.url}/readyz", trust_env=False)
            return response.status_code == httpx2.codes.OK
        return False

    def _is_worker_ready(self, process: ProductProcess) -> bool:
        process.check_alive()
        return ready_file(self.data_dir, process.pid).exists()


def _clean_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(FOREIGN_PREFIXES) and not name.lower().endswith("_proxy")
    }
