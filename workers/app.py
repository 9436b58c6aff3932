"""The Celery app of the workers: `celery -A workers.app worker`.

The entry point of a worker process: settings are read here, and the process's parts are
started and stopped with Celery's own life cycle.
"""

from celery import signals

from shared.broker import create_broker
from shared.logs import configure_logging
from shared.settings import Settings
from workers import tasks
from workers.runtime.process import WorkerProcess

settings = Settings.from_environment()
app = create_broker(settings)
process = WorkerProcess(settings, app)
tasks.register(app, process)


@signals.setup_logging.connect
def _set_up_logging(**_: object) -> None:
    configure_logging(settings)


@signals.worker_init.connect
def _start(**_: object) -> None:
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
