"""Logging: one fixed event name a line, facts as fields, never the content of a message."""

import logging
import sys

import structlog
from structlog.typing import Processor

from shared.settings import Settings

# What reports each request, connection or task at INFO.
CHATTY = (
    "celery.app.trace",
    "celery.worker.strategy",
    "httpx2",
    "httpcore2",
    "openai",
    "aiohttp",
    "alembic",
    "mcp",
    "uvicorn.access",
)


def configure_logging(settings: Settings) -> None:
    """Send structlog's and the standard library's lines to standard error, in one format."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelName(settings.log_level)
        ),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(settings),
            ],
        ),
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


def _renderers(settings: Settings) -> list[Processor]:
    is_console = settings.log_format == "console" or (
        settings.log_format == "auto" and sys.stderr.isatty()
    )
    if is_console:
        return [structlog.dev.ConsoleRenderer()]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
