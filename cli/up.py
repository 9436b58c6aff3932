"""`turnmill up`: the whole product on one machine, from the lock to the last process."""

import asyncio
import shlex
import signal
import traceback
from urllib.parse import urlsplit

import redis

from cli.child import ChildFailedError
from cli.lock import hold_data_dir
from cli.plan import Plan
from cli.ports import is_loopback
from cli.probes import forget_workers
from cli.supervisor import Supervisor
from cli.terminal import Terminal
from shared.errors import UnavailableError
from shared.migrate import upgrade

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
STOPPED = 0
FAILED = 1
# As a shell reports a death by SIGINT.
KILLED = 130
# `timeout`, `npm` and others pass on a Ctrl-C that the terminal has sent to everybody already.
SAME_SIGNAL_S = 0.25
REDIS_TIMEOUT_S = 5.0
EXAMPLE = '{"input": "What is 17 * 23?"}'
DEMO_NOTE = (
    "demo model (scripted, not an LLM): set LLM_MODEL, LLM_API_KEY and LLM_BASE_URL to use a"
    " real one"
)


def run_up(plan: Plan, terminal: Terminal) -> int:
    """Run everything until a signal comes. Returns the exit code.

    Raises TurnmillError if something is missing; then nothing was started.
    """
    settings = plan.settings
    with hold_data_dir(settings.data_dir, url=plan.api_url):
        plan.check_ports()
        check_redis(settings.redis_url if plan.redis is None else None, "TURNMILL_REDIS_URL")
        check_redis(settings.events_redis_url, "TURNMILL_EVENTS_REDIS_URL")
        forget_workers(settings.data_dir)
        upgrade(settings)
        code = asyncio.run(_Run(plan, terminal).run())
        # Nothing is left to stop: one more Ctrl-C must not turn a good end into a traceback.
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        return code


def check_redis(url: str | None, variable: str) -> None:
    """Raise UnavailableError if there should be a Redis, and it does not answer."""
    if url is None:
        return
    try:
        with redis.Redis.from_url(
            url,
            socket_timeout=REDIS_TIMEOUT_S,
            socket_connect_timeout=REDIS_TIMEOUT_S,
        ) as client:
            client.ping()
    except (redis.RedisError, ValueError) as error:
        raise UnavailableError(
            f"Redis at {hide_secrets(url)} cannot be used ({error}): check {variable} and the"
            " server",
        ) from error


def hide_secrets(url: str) -> str:
    """Return the URL without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def describe(plan: Plan) -> str:
    """Return what the user wants to know once everything runs."""
    settings = plan.settings
    database = settings.sync_database_url
    rows = {
        "API": plan.api_url,
        "API docs": f"{plan.api_url}/docs",
        "Flower": plan.flower_url if plan.choices.with_flower else "not started",
        "Data": str(settings.data_dir),
        "Database": hide_secrets(settings.database_url) if settings.database_url else database,
        "Redis": f"{hide_secrets(settings.broker_url)}{' (embedded)' if plan.redis else ''}",
        "Workers": _describe_workers(plan),
        "Model": DEMO_NOTE if plan.demo_port else f"{settings.llm_model}, {settings.llm_base_url}",
    }
    table = "\n".join(f"  {name:9} {value}" for name, value in rows.items())
    curl = shlex.join(
        [
            *("curl", "-N", f"{plan.api_url}/v1/turns"),
            *("-H", "Content-Type: application/json", "-H", "Accept: text/event-stream"),
            *("-d", EXAMPLE),
        ],
    )
    return f"\nTurnmill is ready.\n\n{table}\n\nTry it:\n\n  {curl}\n\nCtrl-C stops everything.\n"


def _describe_workers(plan: Plan) -> str:
    workers, slots = plan.choices.workers, plan.settings.worker_slots
    return f"{workers}, up to {slots} turns each" if workers else "not started: turns wait"


class _Run:
    """One life of the children. Made inside of the event loop's thread."""

    def __init__(self, plan: Plan, terminal: Terminal) -> None:
        self._plan = plan
        self._terminal = terminal
        self._supervisor = Supervisor(terminal)
        self._asked_at_s: float | None = None
        self._is_killed = False
        self._asked_to_stop = asyncio.Event()

    async def run(self) -> int:
        self._listen()
        serving = asyncio.create_task(self._serve())
        asked = asyncio.create_task(self._asked_to_stop.wait())
        await asyncio.wait({serving, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        serving.cancel()
        await asyncio.wait({serving})
        is_failed = self._report_failure(serving)
        await self._stop()
        if is_failed:
            return FAILED
        return KILLED if self._is_killed else STOPPED

    async def _serve(self) -> None:
        """Start everything in order, then watch. Returns only by an error."""
        for stage in self._plan.groups():
            for group in stage:
                self._supervisor.start(group)
            await self._supervisor.wait_ready()
        self._terminal.show(describe(self._plan))
        host = self._plan.settings.host
        if not is_loopback(host):
            self._terminal.say(
                f"the API listens on {host}, and whoever reaches it may use it: put something in"
                " front of it that asks who they are",
            )
        await self._supervisor.watch()

    async def _stop(self) -> None:
        drain_s = self._plan.settings.drain_s
        self._terminal.say(
            f"stopping; workers have up to {drain_s:g} s to end or hand over their turns."
            " Ctrl-C again kills them"
            if self._plan.choices.workers
            else "stopping",
        )
        await self._supervisor.stop()
        self._terminal.say("killed" if self._is_killed else "stopped")

    def _report_failure(self, serving: asyncio.Task[None]) -> bool:
        error = None if serving.cancelled() else serving.exception()
        if error is None:
            return False
        # Anything but a child that failed is a defect of ours: it ends with its traceback.
        self._terminal.say(
            str(error)
            if isinstance(error, ChildFailedError)
            else "".join(traceback.format_exception(error)),
        )
        return True

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._hear)
        # A closed terminal ends everything as well, except under `nohup`.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, self._hear)

    def _hear(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._asked_at_s is None:
            self._asked_at_s = now_s
            self._asked_to_stop.set()
        elif now_s - self._asked_at_s > SAME_SIGNAL_S:
            self._is_killed = True
            self._supervisor.kill()
