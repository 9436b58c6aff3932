"""The Celery app of the workers that run turns: `celery -A workers.app worker`.

The entry point of a worker process: settings are read here, and the process's parts are
started and stopped with Celery's own life cycle.
"""

from celery import signals

from shared.broker import create_broker
from workers import tasks
from workers.entry import exit_unless_started, read_settings
from workers.runtime.process import WorkerProcess

settings = read_settings()
app = create_broker(settings)
process = WorkerProcess(settings, app)
tasks.register(app, process)


@signals.worker_init.connect
def _start(**_: object) -> None:
    with exit_unless_started():
        process.start()


@signals.worker_ready.connect
def _announce(**_: object) -> None:
    process.announce()


@signals.worker_shutting_down.connect
def _drain(**_: object) -> None:
    process.drain()


@signals.worker_shutdown.connect
def _stop(**_: object) -> None:
    process.stop()
