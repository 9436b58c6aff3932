"""One process of a tools worker: an event loop, on which one tool call runs at a time.

Celery forks these processes; each opens what it needs after that.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import structlog
import uvloop
from celery import Celery

from shared.broker import Doorbell
from shared.database import open_database
from shared.event_log import EventLog, open_redis
from shared.event_writer import EventStreams
from shared.settings import Settings
from shared.task_names import ToolTask
from workers.runtime.tool_runner import ToolRunner
from workers.tools.registry import ToolRegistry

log = structlog.get_logger()

# A function that has returned gives its thread back in much less.
THREAD_FREE_S = 0.5
ABANDONED = 3


class ToolsProcess:
    """Everything one such process runs."""

    def __init__(self, settings: Settings, broker: Celery, registry: ToolRegistry) -> None:
        self._loop = uvloop.new_event_loop()
        # Functions that are not async run here; one call at a time needs one thread.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tool")
        self._loop.set_default_executor(self._thread)
        self._runner = self._loop.run_until_complete(_build(settings, broker, registry))

    def run(self, task: ToolTask) -> str:
        """Run a tool call; return in one word what came of it.

        If its function goes on although it was given up, the process ends: threads cannot be
        stopped, and the next call shall have a process of its own.
        """
        outcome = self._loop.run_until_complete(self._runner.run(task))
        if not self._is_thread_free():
            log.warning("tool_abandoned", tool=task.tool_name, tool_call_id=task.tool_call_id)
            os._exit(ABANDONED)
        return outcome

    def _is_thread_free(self) -> bool:
        try:
            self._thread.submit(bool).result(THREAD_FREE_S)
        except TimeoutError:
            return False
        return True


async def _build(settings: Settings, broker: Celery, registry: ToolRegistry) -> ToolRunner:
    database = open_database(settings)
    return ToolRunner(
        registry,
        settings=settings,
        database=database,
        streams=EventStreams(EventLog(open_redis(settings), settings), database),
        doorbell=Doorbell(broker),
    )
