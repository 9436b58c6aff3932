"""One pub/sub connection per process, shared by all who listen.

Pub/sub forgets: every (re)subscription is told to the handlers, who then read what they may
have missed from where it is kept.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import structlog
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

log = structlog.get_logger()

# Called with a message, or with None once the channel is subscribed (again).
Handler = Callable[[bytes | None], None]

# How long one look for a message may take before the connection's health is checked.
POLL_S = 5.0
RECONNECT_S = 0.5


class Subscriptions:
    """Channels and their handlers over one connection. `run` must be running."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._handlers: dict[str, set[Handler]] = {}
        self._pubsub: PubSub | None = None
        self._order = asyncio.Lock()
        self._has_channels = asyncio.Event()

    @contextlib.asynccontextmanager
    async def listen(self, channel: str, handler: Handler) -> AsyncIterator[None]:
        """Let the handler hear the channel. Returns at once; None tells when it is subscribed."""
        handlers = self._handlers.setdefault(channel, set())
        handlers.add(handler)
        try:
            if len(handlers) == 1:
                await self._send("subscribe", channel)
            else:
                handler(None)
            yield
        finally:
            handlers.discard(handler)
            if not handlers and self._handlers.get(channel) is handlers:
                del self._handlers[channel]
                await self._send("unsubscribe", channel)

    async def run(self) -> None:
        """Dispatch messages until cancelled, through losses of the connection."""
        while True:
            await self._has_channels.wait()
            try:
                await self._dispatch()
            except (RedisError, OSError) as error:
                log.warning("subscriptions_lost", error=type(error).__name__)
                await asyncio.sleep(RECONNECT_S)
            finally:
                await self._drop()

    async def _dispatch(self) -> None:
        pubsub = self._redis.pubsub()
        async with self._order:
            self._pubsub = pubsub
            if not self._handlers:
                self._has_channels.clear()
                return
            await pubsub.subscribe(*self._handlers)
        while pubsub.subscribed:
            message = await pubsub.get_message(timeout=POLL_S)
            if message is None:
                continue
            channel = message["channel"].decode()
            payload = message["data"] if message["type"] == "message" else None
            if message["type"] in ("message", "subscribe"):
                for handler in tuple(self._handlers.get(channel, ())):
                    handler(payload)

    async def _send(self, command: str, channel: str) -> None:
        async with self._order:
            self._has_channels.set()
            if self._pubsub is None:
                return  # the next connection subscribes to all channels
            # On failure `run` sees the same broken connection and subscribes to all again.
            with contextlib.suppress(RedisError, OSError):
                await getattr(self._pubsub, command)(channel)

    async def _drop(self) -> None:
        # In order too: nobody may be sending over what is closed here.
        async with self._order:
            pubsub, self._pubsub = self._pubsub, None
            if pubsub is not None:
                with contextlib.suppress(RedisError, OSError):
                    await pubsub.aclose()
