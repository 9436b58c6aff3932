"""The Celery app of the tools workers: `celery -A workers.tools_app worker`.

A worker is a pool of forked processes, each of which runs one tool call at a time.
"""

import os

from celery import signals

from shared.broker import create_broker
from shared.ready_file import ready_file
from shared.task_names import ToolTask
from workers import tool_tasks
from workers.entry import exit_unless_started, read_settings
from workers.runtime.tools_process import ToolsProcess
from workers.tools.discovery import discover_tools
from workers.tools.registry import ToolRegistry

settings = read_settings()
app = create_broker(settings)
_ready_file = ready_file(settings.data_dir, os.getpid())


class _Fork:
    """What the parent finds, and what each process it forks makes of that."""

    registry: ToolRegistry
    process: ToolsProcess


def _run(task: ToolTask) -> None:
    _Fork.process.run(task)


tool_tasks.register(app, _run)


@signals.worker_init.connect
def _find(**_: object) -> None:
    with exit_unless_started():
        _Fork.registry = discover_tools(settings)


@signals.worker_process_init.connect
def _build(**_: object) -> None:
    _Fork.process = ToolsProcess(settings, app, _Fork.registry)


@signals.worker_ready.connect
def _announce(**_: object) -> None:
    _ready_file.parent.mkdir(parents=True, exist_ok=True)
    _ready_file.touch()


@signals.worker_shutdown.connect
def _leave(**_: object) -> None:
    _ready_file.unlink(missing_ok=True)
