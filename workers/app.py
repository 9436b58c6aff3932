"""The Celery app of the workers: `celery -A workers.app worker`.

The entry point of a worker process: settings are read here, and the process's parts are
started and stopped with Celery's own life cycle.
"""

import sys
import warnings

import structlog
from celery import signals
from celery.exceptions import SecurityWarning

from shared.broker import create_broker
from shared.errors import TurnmillError
from shared.logs import configure_logging
from shared.settings import Settings
from workers import tasks
from workers.runtime.process import WorkerProcess

log = structlog.get_logger()

# Who runs a worker decides as whom; tasks are JSON and carry no code.
warnings.filterwarnings("ignore", category=SecurityWarning)

FAILED = 1
REFUSED = 2

settings = Settings.from_environment()
app = create_broker(settings)
process = WorkerProcess(settings, app)
tasks.register(app, process)


@signals.setup_logging.connect
def _set_up_logging(**_: object) -> None:
    configure_logging(settings)


@signals.worker_init.connect
def _start(**_: object) -> None:
    # Celery logs what a handler raises and goes on; only an exit ends the process.
    try:
        process.start()
    except TurnmillError as error:
        sys.stderr.write(f"turnmill: {error.message}\n")
        raise SystemExit(REFUSED) from error
    except Exception as error:
        log.exception("worker_not_started")
        raise SystemExit(FAILED) from error


@signals.worker_ready.connect
def _announce(**_: object) -> None:
    process.announce()


@signals.worker_shutting_down.connect
def _drain(**_: object) -> None:
    process.drain()


@signals.worker_shutdown.connect
def _stop(**_: object) -> None:
    process.stop()
