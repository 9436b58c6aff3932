"""One worker process: an event loop in a thread of its own, and all that lives on it.

Celery's threads are slot holders: each submits its turn to the loop and waits. A thousand
turns that wait on models are a thousand parked threads and one loop.
"""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TypeVar

import structlog
import uvloop
from celery import Celery

from shared.broker import Doorbell
from shared.database import create_sync_engine, open_database
from shared.event_log import EventLog, open_redis
from shared.event_writer import EventStreams
from shared.file_store import FileStore
from shared.ids import uuid7_hex
from shared.ready_file import ready_file
from shared.settings import Settings
from shared.subscriptions import Subscriptions
from shared.task_names import TurnTask
from workers.model.client import ModelClient
from workers.model.limiter import ModelLimiter
from workers.model.retry import Retry
from workers.model.timeouts import Timeouts
from workers.react.engine import ReactEngine
from workers.runtime.heartbeat import Heartbeat
from workers.runtime.held import HeldLeases
from workers.runtime.model_book import ModelBook
from workers.runtime.runner import TurnRunner
from workers.runtime.sweep import Sweep
from workers.tools.toolbox import Toolbox, open_toolbox

log = structlog.get_logger()

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    runner: TurnRunner
    held: HeldLeases
    heartbeat: Heartbeat
    # What runs on the loop as long as the process does.
    tasks: list[asyncio.Task[None]]
    doorbell: Doorbell
    closers: list[Callable[[], Coroutine[None, None, None]]]

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)
        for close in self.closers:
            await close()
        self.doorbell.close()


class WorkerProcess:
    """Everything one worker process runs. Its methods are called from Celery's threads."""

    def __init__(self, settings: Settings, broker: Celery) -> None:
        self._settings = settings
        self._broker = broker
        self._owner = f"{socket.gethostname()[:40]}:{os.getpid()}:{uuid7_hex()[-8:]}"
        self._ready_file = ready_file(settings.data_dir, os.getpid())
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="turns", daemon=True)
        self._parts: _Parts | None = None

    def start(self) -> None:
        """Start the loop and everything on it. Raises ConfigurationError for a bad tool."""
        toolbox = open_toolbox(self._settings, os.environ)
        self._thread.start()
        self._parts = self._call(self._build(toolbox))
        self._parts.heartbeat.start()
        self._call(toolbox.wait_tried())

    def announce(self) -> None:
        """Say that the process takes turns now."""
        self._ready_file.parent.mkdir(parents=True, exist_ok=True)
        self._ready_file.touch()
        log.info("worker_ready", owner=self._owner)

    def run_turn(self, task: TurnTask) -> str:
        """Run a turn on the loop and wait until this process is done with it."""
        return self._call(self._ready_parts.runner.run(task))

    def drain(self) -> None:
        """Begin to hand all turns over. Returns at once."""
        held = self._ready_parts.held
        self._loop.call_soon_threadsafe(held.drain, self._settings.drain_s)

    def stop(self) -> None:
        """Stop everything; no turn is running any more."""
        parts = self._ready_parts
        parts.heartbeat.stop()
        self._call(parts.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._ready_file.unlink(missing_ok=True)

    @property
    def _ready_parts(self) -> "_Parts":
        if self._parts is None:
            raise RuntimeError("the worker process was not started")
        return self._parts

    def _call(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _build(self, toolbox: Toolbox) -> "_Parts":
        settings = self._settings
        database = open_database(settings)
        redis = open_redis(settings)
        streams = EventStreams(EventLog(redis, settings), database)
        subscriptions = Subscriptions(redis)
        doorbell = Doorbell(self._broker)
        held = HeldLeases()
        limiter = ModelLimiter(
            redis,
            subscriptions,
            process=self._owner,
            max_waiting=max(settings.worker_slots // 2, 1),
            max_wait_s=settings.llm_queue_timeout_s,
        )
        book = ModelBook(database)
        models = ModelClient(
            FileStore(settings.files_path),
            limiter,
            book,
            timeouts=Timeouts.of(settings),
            retry=Retry.of(settings),
        )
        engine = ReactEngine(settings, models, book, toolbox)
        heartbeat = Heartbeat(
            # SQLite's one writer is waited for only as long as that leaves time to try again.
            create_sync_engine(settings, lock_timeout_s=settings.lease_s / 3),
            held,
            loop=self._loop,
            owner=self._owner,
            lease_s=settings.lease_s,
            ready_file=self._ready_file,
        )
        sweep = Sweep(
            database,
            streams,
            doorbell,
            pause_s=settings.sweep_s,
            lease_s=settings.lease_s,
            max_crashes=settings.max_crashes,
        )
        runner = TurnRunner(
            engine.run,
            settings=settings,
            owner=self._owner,
            database=database,
            streams=streams,
            subscriptions=subscriptions,
            doorbell=doorbell,
            held=held,
        )
        tasks = [
            asyncio.create_task(work, name=name)
            for name, work in (
                ("heartbeat-tick", heartbeat.tick()),
                ("subscriptions", subscriptions.run()),
                ("sweep", sweep.run()),
                ("model-book", book.run()),
                *((f"mcp-{server.name}", server.run()) for server in toolbox.servers),
            )
        ]
        for task in tasks:
            task.add_done_callback(_report_death)
        return _Parts(
            runner=runner,
            held=held,
            heartbeat=heartbeat,
            tasks=tasks,
            closers=[limiter.stop, models.close, book.save, redis.aclose, database.close],
            doorbell=doorbell,
        )


def _report_death(task: asyncio.Task[None]) -> None:
    """End the process if a part ended by itself: that is a defect, and half a worker is none."""
    if task.cancelled():
        return
    log.error("part_died", part=task.get_name(), exc_info=task.exception())
    os.kill(os.getpid(), signal.SIGTERM)
