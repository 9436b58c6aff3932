"""One child: a process that is kept alive until it is told to stop."""

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cli.lines import Line, LineSplitter, read_line
from cli.programs import Command, python_module
from cli.restarts import START_TRIES, RestartState
from cli.terminal import Terminal

# Between two looks whether a child is ready.
POLL_S = 0.05
# For what is left in the pipe of a process that has ended.
LAST_LINES_S = 1.0
CHUNK_BYTES = 65_536
TAIL_LINES = 20


class ChildFailedError(Exception):
    """A child ends again and again before it is ready for its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """What a child is."""

    name: str
    command: Command
    environment: Mapping[str, str] = field(repr=False)
    # Asked in a thread, with the process's id; must return within a few seconds.
    is_ready: Callable[[int], bool]
    # Time from SIGTERM to SIGKILL.
    stop_timeout_s: float


class Child:
    """A process in a session of its own, so that Ctrl-C reaches the parent alone.

    `keep_alive` runs as long as the child is wanted; `stop` and `kill` end it.
    """

    def __init__(self, spec: ChildSpec, terminal: Terminal) -> None:
        self.spec = spec
        self.is_ready = asyncio.Event()
        self._terminal = terminal
        self._restarts = RestartState()
        self._is_stopping = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        # The last lines that were not shown.
        self._tail: deque[Line] = deque(maxlen=TAIL_LINES)

    @property
    def pid(self) -> int | None:
        """Id of the process, if there is one now."""
        return self._process.pid if self._process else None

    async def keep_alive(self) -> None:
        """Run the process until `stop`, again and again if it must be.

        Raises ChildFailedError if it keeps ending before it was ever ready.
        """
        loop = asyncio.get_running_loop()
        while not self._is_stopping.is_set():
            born_at = loop.time()
            code = await self._live()
            if self._is_stopping.is_set():
                return
            ended, lived_s = describe_end(code), loop.time() - born_at
            self._restarts = self._restarts.after_death(lived_s=lived_s, code=code)
            if self._restarts.is_hopeless:
                self.show_tail()
                times = f", {START_TRIES} times" if self._restarts.deaths == START_TRIES else ""
                raise ChildFailedError(f"{self.spec.name} cannot be started: it {ended}{times}")
            self._terminal.say(
                f"{self.spec.name} {ended}; it starts again in {self._restarts.delay_s:g} s",
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_stopping.wait(), self._restarts.delay_s)

    def stop(self) -> None:
        """Ask the process to end; `keep_alive` returns when it has."""
        self._is_stopping.set()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def kill(self) -> None:
        """End the process and all that it started at once."""
        self._is_stopping.set()
        if self._process is not None:
            _kill_group(self._process.pid)

    def show_tail(self) -> None:
        """Show the last lines that were held back."""
        while self._tail:
            self._terminal.show_line(self.spec.name, self._tail.popleft())

    async def _live(self) -> int:
        """Run the process once. Returns its exit code, as `subprocess` gives it."""
        reading, writing = os.pipe()
        try:
            self._process = process = await self._spawn(writing)
        finally:
            os.close(writing)
        if self._is_stopping.is_set():
            self.stop()
        helpers = [
            asyncio.create_task(self._read(reading)),
            asyncio.create_task(self._watch(process.pid)),
        ]
        try:
            code = await process.wait()
        finally:
            # What it started itself must not outlive it.
            _kill_group(process.pid)
            self._process = None
            await _finish(*helpers)
        return code

    async def _spawn(self, output: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *python_module("cli.tether", str(os.getpid()), *self.spec.command),
            env=self.spec.environment,
            stdin=asyncio.subprocess.DEVNULL,
            # Our own pipe: the end of the process is then seen even if something it started
            # keeps the pipe open.
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    async def _watch(self, pid: int) -> None:
        while not await asyncio.to_thread(self.spec.is_ready, pid):  # noqa: ASYNC110 - nobody would set an event
            await asyncio.sleep(POLL_S)
        self._restarts = self._restarts.after_ready()
        self.is_ready.set()

    async def _read(self, descriptor: int) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader),
            os.fdopen(descriptor, "rb", buffering=0),
        )
        splitter = LineSplitter()
        try:
            while True:
                chunk = await reader.read(CHUNK_BYTES)
                for raw in splitter.feed(chunk):
                    self._take(read_line(raw))
                if not chunk:
                    return
        finally:
            transport.close()

    def _take(self, line: Line) -> None:
        if self._terminal.is_verbose or line.is_notable:
            self._terminal.show_line(self.spec.name, line)
        else:
            self._tail.append(line)


def describe_end(code: int) -> str:
    """Return how a process ended, for a sentence. code: as `subprocess` gives it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


async def _finish(reading: asyncio.Task[None], watching: asyncio.Task[None]) -> None:
    watching.cancel()
    await asyncio.wait({reading}, timeout=LAST_LINES_S)
    reading.cancel()
    await asyncio.wait({reading, watching})


def _kill_group(pid: int) -> None:
    # macOS forbids it for a group of which only ended processes are left.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
