"""The ASGI application: `uvicorn --factory api.app:create_app`.

The entry point of an API process: settings are read here, and the process's parts are opened and
closed with the application's life cycle.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import structlog
from fastapi import FastAPI

from api import problems, views
from api.background import Background
from api.dependencies import Parts
from api.exit_signals import on_exit_signal
from api.feed import Feeds
from api.middleware import BodyLimit, RequestContext
from api.routes import control, conversations, files, health, models, turns
from shared.broker import Doorbell, create_broker
from shared.database import open_database
from shared.event_log import EventLog, open_redis
from shared.event_writer import EventStreams
from shared.file_store import FileStore
from shared.logs import configure_logging
from shared.settings import Settings
from shared.subscriptions import Subscriptions

log = structlog.get_logger()

# Pause before a part that crashed is run again.
RESTART_S = 1.0

ROUTERS = (
    turns.router,
    control.router,
    conversations.router,
    files.router,
    models.router,
    health.router,
)


def create_app() -> FastAPI:
    """Return the application that the environment describes. Raises ConfigurationError."""
    settings = Settings.from_environment()
    configure_logging(settings)
    return create_app_with(settings)


def create_app_with(settings: Settings) -> FastAPI:
    """Return the application with these settings."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_parts(settings) as parts:
            app.state.parts = parts
            loop = asyncio.get_running_loop()
            with on_exit_signal(lambda: loop.call_soon_threadsafe(parts.feeds.close)):
                yield

    app = FastAPI(
        title="Turnmill",
        summary="Durable agent chat at high volume",
        lifespan=lifespan,
        responses={"4XX": {"model": views.Problem}, "5XX": {"model": views.Problem}},
    )
    problems.register(app)
    for router in ROUTERS:
        app.include_router(router)
    app.add_middleware(
        BodyLimit,
        max_bytes=settings.max_body_bytes,
        max_file_bytes=settings.max_file_bytes,
    )
    app.add_middleware(RequestContext)  # the last one added comes first
    return app


@contextlib.asynccontextmanager
async def open_parts(settings: Settings) -> AsyncIterator[Parts]:
    """Open the parts of an API process and close them in order."""
    async with contextlib.AsyncExitStack() as stack:
        database = open_database(settings)
        stack.push_async_callback(database.close)
        doorbell = Doorbell(create_broker(settings))
        stack.push_async_callback(asyncio.to_thread, doorbell.close)
        redis = open_redis(settings)
        stack.push_async_callback(redis.aclose)
        subscriptions = Subscriptions(redis)
        await stack.enter_async_context(_running(subscriptions))
        streams = EventStreams(EventLog(redis, settings), database)
        feeds = Feeds(streams, subscriptions, database)
        await stack.enter_async_context(_running(feeds))
        stack.push_async_callback(feeds.finish)
        background = Background()
        stack.push_async_callback(background.finish)
        stack.callback(feeds.close)
        yield Parts(
            settings=settings,
            database=database,
            files=FileStore(settings.files_path),
            redis=redis,
            streams=streams,
            feeds=feeds,
            doorbell=doorbell,
            background=background,
        )


@contextlib.asynccontextmanager
async def _running(part: Subscriptions | Feeds) -> AsyncIterator[None]:
    task = asyncio.create_task(_run_for_ever(part))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _run_for_ever(part: Subscriptions | Feeds) -> None:
    while True:
        try:
            await part.run()
        except Exception:
            log.exception("part_crashed", part=type(part).__name__)
        await asyncio.sleep(RESTART_S)
