"""The limits of models, kept for all workers together in Redis.

Every try of a call needs a permit. Who waits for one stands in a line in Redis that is fair between
shares; `limiter.lua` says whose turn it is. In each process one task per model speaks for all of
its calls, and ends when there are none. Without Redis, every process keeps to its last share of the
limits.
"""

import asyncio
import hashlib
import json
import random
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared import redis_keys
from shared.errors import Deferred
from shared.subscriptions import Subscriptions
from workers.model.limits import Limits, Ticket
from workers.model.values import ModelTarget, Usage

log = structlog.get_logger()

SCRIPT = (Path(__file__).parent / "limiter.lua").read_text(encoding="utf-8")

# A lost process keeps its permits and its places in the line so long.
PERMIT_TTL_S = 30.0
PROCESS_TTL_S = 6.0
# Between two words of a process that only holds permits.
RENEW_S = 5.0
# Time without Redis before it is asked again.
AWAY_S = 1.0
# About how long a turn is parked that found no room.
PARK_S = 5.0
MINUTE_S = 60.0


class Permit:
    """Leave to make one call."""

    def __init__(self, permit_id: str, tokens: int, second: int) -> None:
        self.id = permit_id
        # Counted so far, in a second of Redis's clock.
        self.tokens = tokens
        self.second = second
        # By which that was too few.
        self.missing = 0

    def settle(self, usage: Usage) -> None:
        """Count what the call has used in fact."""
        self.missing = usage.input_tokens + usage.output_tokens - self.tokens


class ModelLimiter:
    """Permits for calls of models. One per worker process, used on one event loop.

    max_waiting: calls of this process that may wait for one model; others are deferred.
    max_wait_s: time after which one that waits is.
    """

    def __init__(
        self,
        redis: Redis,
        subscriptions: Subscriptions,
        *,
        process: str,
        max_waiting: int,
        max_wait_s: float,
    ) -> None:
        self._redis = redis
        self._subscriptions = subscriptions
        self._process = process
        self._max_waiting = max_waiting
        self._max_wait_s = max_wait_s
        self._lines: dict[str, _Line] = {}

    @asynccontextmanager
    async def permit(self, target: ModelTarget, ticket: Ticket) -> AsyncIterator[Permit]:
        """Wait until a call may be made, and hold a permit for it meanwhile.

        Raises Deferred if there is no room for one that waits, or it waited too long.
        """
        line = self._line(target)
        with _stopped(ticket.timeout):
            permit = await line.wait(ticket, self._max_wait_s)
        try:
            yield permit
        finally:
            line.release(permit)

    def close(self, target: ModelTarget, seconds: float) -> None:
        """Let nobody call the model for a while: its provider refuses more for now."""
        self._line(target).close(seconds)

    async def stop(self) -> None:
        """Give back what is held. No call may be running."""
        pumps = [line.pump for line in self._lines.values() if line.pump is not None]
        if pumps:
            await asyncio.wait(pumps, timeout=AWAY_S)
        for pump in pumps:
            pump.cancel()

    def _line(self, target: ModelTarget) -> "_Line":
        key = hashlib.sha256(f"{target.base_url}\n{target.name}".encode()).hexdigest()[:32]
        line = self._lines.get(key)
        if line is None:
            line = _Line(
                self._redis,
                self._subscriptions,
                self._process,
                key,
                max_waiting=self._max_waiting,
            )
            self._lines[key] = line
        line.limits = target.limits
        return line


class _Waiting:
    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.permit: asyncio.Future[Permit] = asyncio.get_running_loop().create_future()


class _Line:
    """This process's part of the line for one model."""

    def __init__(
        self,
        redis: Redis,
        subscriptions: Subscriptions,
        process: str,
        key: str,
        *,
        max_waiting: int,
    ) -> None:
        self.limits = Limits()
        # Runs while there is anything to say or to hear.
        self.pump: asyncio.Task[None] | None = None
        self._script = redis.register_script(SCRIPT)
        self._subscriptions = subscriptions
        self._process = process
        self._max_waiting = max_waiting
        self._keys = redis_keys.limiter_keys(key)
        self._channel = redis_keys.limiter_channel(key)
        self._changed = asyncio.Event()
        self._next_id = 0
        self._waiting: dict[str, _Waiting] = {}
        self._held: dict[str, Permit] = {}
        # To be said.
        self._released: list[Permit] = []
        self._left: list[str] = []
        self._kept: list[tuple[str, str]] = []
        self._closed_s = 0.0
        self._share = _Share()
        self._away_until = 0.0

    async def wait(self, ticket: Ticket, max_wait_s: float) -> Permit:
        """Return a permit when its turn has come.

        Raises Deferred after max_wait_s, or if too many of this process wait already.
        """
        waiting, waiter = _Waiting(ticket), self._name()
        self._waiting[waiter] = waiting
        self._wake()
        permit = None
        try:
            async with asyncio.timeout(max_wait_s):
                permit = await waiting.permit
        except TimeoutError:
            raise _deferred() from None
        finally:
            if permit is None:
                self._leave(waiter, ticket)
        return permit

    def _leave(self, waiter: str, ticket: Ticket) -> None:
        if self._waiting.pop(waiter, None) is not None:
            if ticket.place:
                self._kept.append((waiter, ticket.place))
            self._left.append(waiter)
            self._wake()
        elif (permit := self._held.get(waiter)) is not None:
            # Granted in the moment of leaving.
            self.release(permit)

    def release(self, permit: Permit) -> None:
        """Give a permit back."""
        if self._held.pop(permit.id, None) is not None:
            self._released.append(permit)
            self._wake()

    def close(self, seconds: float) -> None:
        """Close the gate for everybody."""
        self._closed_s = max(self._closed_s, seconds)
        self._share.close(seconds)
        self._wake()

    def _name(self) -> str:
        self._next_id += 1
        return f"{self._process}/{self._next_id}"

    def _wake(self) -> None:
        self._changed.set()
        if self.pump is None or self.pump.done():
            self.pump = asyncio.create_task(self._run(), name="model-line")

    def _hear(self, payload: bytes | None) -> None:
        if payload is None or payload.decode() == self._process:
            self._changed.set()

    async def _run(self) -> None:
        while self._has_business:
            async with AsyncExitStack() as stack:
                await self._talk(stack)
        self.pump = None

    async def _talk(self, stack: AsyncExitStack) -> None:
        is_listening = False
        while self._has_business:
            self._changed.clear()
            wait_s = await self._look()
            if self._waiting and not is_listening:
                is_listening = True
                heard = self._subscriptions.listen(self._channel, self._hear)
                # Another look follows: it sees what was said before this was heard.
                await stack.enter_async_context(heard)
            elif self._has_business:
                await self._until_changed(wait_s)

    @property
    def _has_business(self) -> bool:
        return self._is_urgent or bool(self._held)

    @property
    def _is_urgent(self) -> bool:
        """Whether something is to be heard or said, more than that permits are still held."""
        to_say = self._released or self._left or self._kept or self._closed_s
        return bool(self._waiting or to_say)

    async def _until_changed(self, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s if self._is_urgent else RENEW_S):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _look(self) -> float:
        """Say what is new and take what is granted; return when to look again."""
        if time.monotonic() >= self._away_until:
            try:
                return await self._exchange()
            except (RedisError, OSError) as error:
                log.warning("limiter_away", error=type(error).__name__)
                self._away_until = time.monotonic() + AWAY_S
        return self._grant_share()

    async def _exchange(self) -> float:
        released, left, kept = list(self._released), list(self._left), list(self._kept)
        closed_s = self._closed_s
        said = {
            "waiting": [
                (waiter, it.ticket.share, it.ticket.tokens, it.ticket.place or waiter)
                for waiter, it in self._waiting.items()
            ],
            # Empty lists would be objects to the other side, which does not mind.
            "held": list(self._held),
            "released": [(permit.id, permit.second, permit.missing) for permit in released],
            "left": left,
            "kept": kept,
            "closed_ms": int(closed_s * 1000),
        }
        answer = await self._script(
            keys=self._keys,
            args=[
                self._channel,
                self._process,
                self._max_waiting,
                self.limits.max_in_flight or 0,
                self.limits.requests_per_minute or 0,
                self.limits.tokens_per_minute or 0,
                int(PERMIT_TTL_S * 1000),
                int(PROCESS_TTL_S * 1000),
                json.dumps(said),
            ],
        )
        # Only now: what was not heard is said again.
        del self._released[: len(released)]
        del self._left[: len(left)]
        del self._kept[: len(kept)]
        if self._closed_s == closed_s:
            self._closed_s = 0.0
        return self._take(*answer)

    def _take(
        self,
        wait_ms: int,
        processes: int,
        second: int,
        granted: list[bytes],
        over: list[bytes],
    ) -> float:
        self._share.processes = processes
        for name in granted:
            self._grant(name.decode(), second)
        self._defer(name.decode() for name in over)
        return wait_ms / 1000

    def _grant(self, waiter: str, second: int) -> None:
        waiting = self._waiting.pop(waiter, None)
        permit = Permit(waiter, waiting.ticket.tokens if waiting else 0, second)
        if waiting is None or waiting.permit.done():
            self._released.append(permit)  # it has left meanwhile
            return
        if self.limits.are_set:
            self._held[waiter] = permit
        waiting.permit.set_result(permit)

    def _grant_share(self) -> float:
        """Grant what this process may without the others; return when to look again."""
        for waiter, waiting in list(self._waiting.items()):
            wait_s = self._share.take(self.limits, len(self._held), waiting.ticket.tokens)
            if wait_s > 0:
                self._defer(list(self._waiting)[self._max_waiting :])
                return min(wait_s, AWAY_S)
            self._left.append(waiter)
            self._grant(waiter, 0)
        return AWAY_S

    def _defer(self, waiters: Iterable[str]) -> None:
        for waiter in waiters:
            waiting = self._waiting.get(waiter)
            if waiting is not None and not waiting.permit.done():
                waiting.permit.set_exception(_deferred())


class _Share:
    """What one of several processes may do on its own."""

    def __init__(self) -> None:
        self.processes = 1
        self._free_at = 0.0

    def close(self, seconds: float) -> None:
        """Grant nothing for a while."""
        self._free_at = max(self._free_at, time.monotonic() + seconds)

    def take(self, limits: Limits, in_flight: int, tokens: int) -> float:
        """Count one more call; return 0, or how long to wait first. Calls are spread evenly."""
        now = time.monotonic()
        if now < self._free_at:
            return self._free_at - now
        most = limits.max_in_flight
        if most is not None and in_flight >= max(most // self.processes, 1):
            return AWAY_S
        pauses_s = [0.0]
        if limits.requests_per_minute is not None:
            pauses_s.append(MINUTE_S / limits.requests_per_minute)
        if limits.tokens_per_minute is not None:
            pauses_s.append(tokens * MINUTE_S / limits.tokens_per_minute)
        self._free_at = now + max(pauses_s) * self.processes
        return 0.0


@contextmanager
def _stopped(timeout: asyncio.Timeout | None) -> Iterator[None]:
    """Let no time of a timeout pass meanwhile."""
    if timeout is None or (until := timeout.when()) is None:
        yield
        return
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    timeout.reschedule(None)
    try:
        yield
    finally:
        timeout.reschedule(until + loop.time() - began_at)


def _deferred() -> Deferred:
    return Deferred(PARK_S * random.uniform(0.7, 1.3))  # noqa: S311
