"""`turnmill up` as a user runs it: everything comes up, stays up, and goes down in order."""

import json
import os
import shlex
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.helpers.client import TurnmillClient
from tests.helpers.ports import free_port
from tests.helpers.waiting import wait_until

TURNMILL = Path(sysconfig.get_path("scripts")) / "turnmill"
FOREIGN_PREFIXES = ("TURNMILL_", "LLM_", "OPENAI_", "REACT_")
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 40.0


class Up:
    """One `turnmill up` in a folder that holds its data and what it writes."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        port: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._files = [folder / f"{self.port}.{name}" for name in ("out", "err")]
        with self._files[0].open("wb") as out, self._files[1].open("wb") as err:
            self.process = subprocess.Popen(
                [str(TURNMILL), "up", "--port", str(self.port), *options],
                env={
                    name: value
                    for name, value in os.environ.items()
                    if not name.startswith(FOREIGN_PREFIXES)
                }
                | dict(environment or {}),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def out(self) -> str:
        """What it wrote to standard output."""
        return self._files[0].read_text(encoding="utf-8")

    @property
    def err(self) -> str:
        """What it wrote to standard error."""
        return self._files[1].read_text(encoding="utf-8")

    def wait_ready(self) -> None:
        """Wait until it says that everything runs."""
        wait_until(
            lambda: self.process.poll() is not None or "Ctrl-C stops" in self.out,
            timeout_s=START_TIMEOUT_S,
            message=lambda: f"not ready:\n{self.err}",
        )
        assert self.process.poll() is None, self.err

    def children(self) -> list[psutil.Process]:
        """Return its processes."""
        return psutil.Process(self.process.pid).children()

    def child(self, word: str) -> psutil.Process | None:
        """Return the process whose command line holds the word."""
        return next((child for child in self.children() if word in _command(child)), None)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send the signal; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(STOP_TIMEOUT_S)


Start = Callable[..., Up]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Up] = []

    def start(
        *options: str,
        port: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Up:
        started.append(Up(tmp_path, *options, port=port, environment=environment))
        return started[-1]

    yield start
    for up in started:
        if up.process.poll() is None:
            family = up.children()
            up.process.kill()
            for child in family:
                if child.is_running():
                    child.kill()
            up.process.wait(STOP_TIMEOUT_S)


def ask(up: Up, text: str = "What is 17 * 23?") -> dict[str, object]:
    with TurnmillClient(up.url) as client:
        return client.get_turn(client.post_turn(text)["id"], wait_s=30)


def are_gone(processes: list[psutil.Process]) -> bool:
    return not any(
        process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes
    )


def test_printed_line_works_and_the_turn_is_there_after_a_restart(start: Start) -> None:
    up = start()
    up.wait_ready()
    line = next(line for line in up.out.splitlines() if line.startswith("  curl"))

    events = subprocess.run(
        ["/bin/sh", "-c", f"{line} --silent --max-time 60"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout

    assert shlex.split(line)[0] == "curl"
    assert '"tool_name":"calculator"' in events
    last = events.strip().splitlines()
    assert "event: done" in last
    done = json.loads(last[-1].removeprefix("data: "))
    assert "391" in done["answer"]
    assert up.stop() == 0
    again = start()
    again.wait_ready()
    with TurnmillClient(again.url) as client:
        assert client.get_turn(done["turn_id"])["answer"] == done["answer"]
    assert again.stop(signal.SIGTERM) == 0


def test_everything_stops_with_one_signal(start: Start) -> None:
    up = start("--workers", "2")
    up.wait_ready()
    family = up.children()
    # Redis, demo model, Flower, API, two workers, one for tools
    assert len(family) == 7

    assert up.stop() == 0

    assert are_gone(family)
    assert up.err.splitlines()[-1] == "turnmill: stopped"


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("redis", "valkey-server"),
        ("demo", "-m demo"),
        ("flower", "flower"),
        ("api", "uvicorn"),
        ("worker-1", "worker-1@"),
    ],
)
def test_killed_process_is_started_again(start: Start, name: str, word: str) -> None:
    up = start()
    up.wait_ready()
    victim = up.child(word)
    assert victim is not None

    victim.kill()
    wait_until(
        lambda: (child := up.child(word)) is not None and child.pid != victim.pid,
        message=lambda: f"{name} does not start again:\n{up.err}",
    )
    wait_until(
        lambda: _is_ready(up),
        timeout_s=START_TIMEOUT_S,
        message=lambda: f"not ready again:\n{up.err}",
    )

    assert ask(up)["status"] == "completed"
    assert f"turnmill: {name} was killed by SIGKILL; it starts again in 0.5 s" in up.err
    assert up.stop() == 0


def test_second_one_is_told_who_holds_the_data(start: Start) -> None:
    first = start("--no-worker", "--no-flower")
    first.wait_ready()

    second = start("--no-worker", "--no-flower")

    assert second.process.wait(START_TIMEOUT_S) == 2
    assert len(second.err.splitlines()) == 1
    assert f"(process {first.process.pid} on " in second.err
    assert f"API at {first.url})" in second.err
    assert first.stop() == 0


def test_second_signal_kills_what_does_not_stop(start: Start) -> None:
    up = start("--no-flower")
    up.wait_ready()
    family = up.children()
    worker = up.child("worker-1@")
    assert worker is not None
    worker.suspend()
    up.process.send_signal(signal.SIGINT)
    wait_until(lambda: "stopping" in up.err, message="it does not stop")

    # One that comes too soon counts as the same Ctrl-C.
    def press_again() -> bool:
        up.process.send_signal(signal.SIGINT)
        return are_gone([worker])

    wait_until(press_again, message=lambda: f"it waits for the worker:\n{up.err}")

    assert up.process.wait(STOP_TIMEOUT_S) == 130
    assert are_gone(family)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_killed_parent_leaves_nothing_behind(start: Start) -> None:
    up = start()
    up.wait_ready()
    family = up.children()

    up.process.kill()
    up.process.wait(STOP_TIMEOUT_S)

    wait_until(lambda: are_gone(family), message="a process outlived its parent")
    again = start(port=up.port)
    again.wait_ready()
    assert again.stop() == 0


def test_wrong_setting_of_a_part_ends_it_at_once(start: Start) -> None:
    up = start("--no-flower", environment={"TURNMILL_TOOLS": "nowhere"})

    assert up.process.wait(START_TIMEOUT_S) == 1
    assert "TURNMILL_TOOLS: 'nowhere' cannot be imported" in up.err
    # Whichever worker finds it first.
    assert "cannot be started: it ended with exit code 2\n" in up.err


def test_part_that_cannot_start_ends_it_with_a_sentence(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Flower reads it, and cannot.
    monkeypatch.setenv("FLOWER_MAX_TASKS", "many")
    up = start("--no-worker")

    assert up.process.wait(START_TIMEOUT_S) == 1
    assert "turnmill: flower cannot be started: it ended with exit code 1, 3 times" in up.err
    assert up.err.splitlines()[-1] == "turnmill: stopped"


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a zombie is one too
        return ""


def _is_ready(up: Up) -> bool:
    try:
        return httpx2.get(f"{up.url}/readyz", trust_env=False).status_code == httpx2.codes.OK
    except httpx2.TransportError:
        return False
