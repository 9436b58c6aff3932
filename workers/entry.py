"""What the Celery apps of all workers begin with."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from celery import signals
from celery.exceptions import SecurityWarning

from shared.errors import TurnmillError
from shared.logs import configure_logging
from shared.settings import Settings

log = structlog.get_logger()

FAILED = 1
REFUSED = 2


def read_settings() -> Settings:
    """Read the settings of a worker, and have its lines written as they say."""
    # Who runs a worker decides as whom; tasks are JSON and carry no code.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    settings = Settings.from_environment()

    def set_up_logging(**_: object) -> None:
        configure_logging(settings)

    # Celery would keep no more than a weak reference to it.
    signals.setup_logging.connect(set_up_logging, weak=False)
    return settings


@contextmanager
def exit_unless_started() -> Iterator[None]:
    """End the process if its start fails: Celery logs what a handler raises and goes on."""
    try:
        yield
    except TurnmillError as error:
        sys.stderr.write(f"turnmill: {error.message}\n")
        raise SystemExit(REFUSED) from error
    except Exception as error:
        log.exception("worker_not_started")
        raise SystemExit(FAILED) from error
