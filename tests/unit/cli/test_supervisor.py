"""Children here are tiny real processes; all waits are for what they do."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from cli.child import ChildFailedError, ChildSpec, describe_end
from cli.lines import Line
from cli.programs import module_environment
from cli.supervisor import Supervisor
from cli.terminal import Terminal
from tests.helpers.waiting import wait_until, wait_until_async

ROOT = Path(__file__).parents[3]
ENVIRONMENT = module_environment(os.environ, directory=str(ROOT))
# Makes a file once it is ready, and lives until it is told to end.
SERVE = """
import pathlib, signal, sys, threading
ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
pathlib.Path(sys.argv[1]).touch()
while not ended.wait(0.01):
    pass
with open(sys.argv[2], "a") as order:
    order.write(sys.argv[3] + "\\n")
"""
STUBBORN = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).touch()
while True:
    time.sleep(60)
"""
# Starts a process of its own, writes down its id, and dies with it still running.
LEAVE_ONE_BEHIND = """
import pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
import os; os._exit(3)
"""


class Recorder(Terminal):
    """A terminal that keeps what is said."""

    def __init__(self, *, is_verbose: bool = False) -> None:
        super().__init__(is_verbose=is_verbose)
        self.said: list[str] = []
        self.lines: list[tuple[str, str]] = []

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def show_line(self, name: str, line: Line) -> None:
        self.lines.append((name, line.text))


@pytest.fixture
def terminal() -> Recorder:
    return Recorder()


@pytest.fixture
async def supervisor(terminal: Recorder) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(terminal, ready_timeout_s=30)
    yield supervisor
    supervisor.kill()
    await supervisor.stop()


def spec(
    name: str,
    code: str,
    *arguments: str,
    is_ready: Callable[[int], bool] = lambda _: False,
    stop_timeout_s: float = 30,
) -> ChildSpec:
    return ChildSpec(
        name=name,
        command=(sys.executable, "-c", code, *arguments),
        environment=ENVIRONMENT,
        is_ready=is_ready,
        stop_timeout_s=stop_timeout_s,
    )


def server(folder: Path, name: str) -> ChildSpec:
    ready = folder / f"{name}.ready"
    return spec(
        name,
        SERVE,
        *(str(ready), str(folder / "order"), name),
        is_ready=lambda _: ready.exists(),
    )


def is_gone(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except FileNotFoundError:
        return True
    return "State:\tZ" in status


async def test_groups_stop_in_reverse_order(supervisor: Supervisor, tmp_path: Path) -> None:
    for name in ("redis", "api", "worker"):
        supervisor.start([server(tmp_path, name)])
    await supervisor.wait_ready()

    await supervisor.stop()

    assert (tmp_path / "order").read_text(encoding="utf-8").split() == ["worker", "api", "redis"]


async def test_killed_child_starts_again_and_it_is_said(
    supervisor: Supervisor,
    terminal: Recorder,
    tmp_path: Path,
) -> None:
    [child] = supervisor.start([server(tmp_path, "api")])
    await supervisor.wait_ready()
    ready, first = tmp_path / "api.ready", child.pid
    assert first is not None
    ready.unlink()

    os.kill(first, signal.SIGKILL)
    await wait_until_async(ready.exists, message="the child does not start again")

    assert child.pid != first
    assert terminal.said == ["api was killed by SIGKILL; it starts again in 0.5 s"]


async def test_child_that_cannot_start_is_given_up_and_its_last_words_are_shown(
    supervisor: Supervisor,
    terminal: Recorder,
) -> None:
    supervisor.start([spec("api", "print('no database'); raise SystemExit(3)")])

    with pytest.raises(ChildFailedError, match="api cannot be started: it ended with exit code 3"):
        await supervisor.wait_ready()

    assert len(terminal.said) == 2
    assert terminal.lines == [("api", "no database")] * 3


async def test_child_that_never_is_ready_is_given_up(terminal: Recorder) -> None:
    supervisor = Supervisor(terminal, ready_timeout_s=0.2)
    supervisor.start([spec("api", "input()", is_ready=lambda _: False)])
    supervisor.start([spec("worker", "import time; time.sleep(60)")])

    with pytest.raises(ChildFailedError, match=r"is not ready after 0\.2 s"):
        await supervisor.wait_ready()

    supervisor.kill()
    await supervisor.stop()


async def test_stop_before_the_restart_cancels_it(
    supervisor: Supervisor,
    terminal: Recorder,
) -> None:
    supervisor.start([spec("api", "raise SystemExit(1)", is_ready=lambda _: True)])
    await wait_until_async(lambda: terminal.said, message="the child has not died")

    await supervisor.stop()

    assert len(terminal.said) <= 2


async def test_stubborn_child_is_killed_after_its_time(
    supervisor: Supervisor,
    terminal: Recorder,
    tmp_path: Path,
) -> None:
    ready = tmp_path / "ready"
    [child] = supervisor.start(
        [
            spec(
                "worker",
                STUBBORN,
                str(ready),
                is_ready=lambda _: ready.exists(),
                stop_timeout_s=0.2,
            ),
        ],
    )
    await supervisor.wait_ready()
    pid = child.pid
    assert pid is not None

    await supervisor.stop()

    assert terminal.said == ["worker has not ended after 0.2 s and is killed"]
    assert is_gone(pid)


async def test_kill_ends_a_stop_that_waits(supervisor: Supervisor, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    supervisor.start(
        [spec("worker", STUBBORN, str(ready), is_ready=lambda _: ready.exists())],
    )
    await supervisor.wait_ready()
    stopping = asyncio.create_task(supervisor.stop())
    await asyncio.sleep(0)

    supervisor.kill()

    await asyncio.wait_for(stopping, 10)


async def test_dead_child_leaves_no_process_behind(
    supervisor: Supervisor,
    terminal: Recorder,
    tmp_path: Path,
) -> None:
    supervisor.start([spec("worker", LEAVE_ONE_BEHIND, str(tmp_path / "pid"))])
    await wait_until_async(lambda: terminal.said, message="the child has not died")

    left = int((tmp_path / "pid").read_text(encoding="utf-8"))
    await wait_until_async(lambda: is_gone(left), message="its process is still there")


async def test_child_lives_in_a_session_of_its_own(supervisor: Supervisor, tmp_path: Path) -> None:
    [child] = supervisor.start([server(tmp_path, "api")])
    await supervisor.wait_ready()

    assert child.pid is not None
    assert os.getsid(child.pid) == child.pid


@pytest.mark.parametrize("is_verbose", [False, True])
async def test_quiet_shows_warnings_and_verbose_shows_all(
    tmp_path: Path, *, is_verbose: bool
) -> None:
    terminal = Recorder(is_verbose=is_verbose)
    supervisor = Supervisor(terminal)
    ready = tmp_path / "ready"
    code = (
        """print('plain'); print('{"event": "odd", "level": "warning"}', flush=True)\n""" + STUBBORN
    )
    supervisor.start([spec("api", code, str(ready), is_ready=lambda _: ready.exists())])
    await supervisor.wait_ready()

    await wait_until_async(lambda: terminal.lines, message="nothing is shown")
    supervisor.kill()
    await supervisor.stop()

    plain = [("api", "plain")] if is_verbose else []
    assert terminal.lines == [*plain, ("api", "warning: odd")]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_children_of_a_killed_parent_die(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-m', 'cli.tether', str(os.getpid()), *sys.argv[1:]])\n"
        "input()"
    )
    ready = tmp_path / "pid"
    child = f"import os, pathlib, time; pathlib.Path({str(ready)!r}).write_text(str(os.getpid()))"
    command = [sys.executable, "-c", f"{child}\ntime.sleep(60)"]
    with subprocess.Popen(
        [sys.executable, "-c", code, *command],
        cwd=ROOT,
        stdin=subprocess.PIPE,
    ) as parent:
        pid = int(
            wait_until(
                lambda: ready.exists() and ready.read_text(encoding="utf-8"),
                message="the child has not started",
            )
            or 0,
        )
        parent.kill()

    wait_until(lambda: is_gone(pid), message="the child outlived its parent")


def test_child_of_another_parent_does_not_start() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cli.tether", "1", sys.executable, "-c", "print('ran')"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )

    assert done.returncode == 1
    assert done.stdout == b""


def test_ends_are_described() -> None:
    assert describe_end(0) == "ended with exit code 0"
    assert describe_end(-9) == "was killed by SIGKILL"
    assert describe_end(-1000) == "was killed by signal 1000"
