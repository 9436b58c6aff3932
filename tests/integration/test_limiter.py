"""One limiter per process over one Redis: what all of them together let through."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from shared.errors import Deferred
from shared.redis_keys import LIMITER_PARTS
from tests.helpers.limits import open_limiter
from tests.helpers.servers import RedisServer
from tests.helpers.waiting import wait_until_async
from tests.unit.workers.model.requests import TARGET
from workers.model import limiter as limiter_module
from workers.model.limiter import ModelLimiter, _Share
from workers.model.limits import NO_TICKET, Limits, Ticket
from workers.model.values import ModelTarget, Usage

ONE_AT_A_TIME = replace(TARGET, limits=Limits(max_in_flight=1))
OTHER_MODEL = replace(ONE_AT_A_TIME, name="model-2")


@dataclass
class Two:
    """Two processes, and what stands in their Redis."""

    one: ModelLimiter
    other: ModelLimiter
    redis: Redis

    def key(self, part: str) -> str:
        """Return the name of a key of the only model in use."""
        assert part in LIMITER_PARTS
        (name,) = self.redis.keys(f"turnmill:limit:*:{part}")
        return str(name)

    def window(self) -> dict[str, int]:
        """Return what the last minute has seen."""
        fields = {str(name): int(n) for name, n in self.redis.hgetall(self.key("window")).items()}
        return {kind: sum(fields[it] for it in fields if it[0] == kind) for kind in "rt"}

    def make_older(self, seconds: int) -> None:
        """Let what was granted have been granted that long ago."""
        window = self.key("window")
        for name, count in self.redis.hgetall(window).items():
            field = str(name)
            self.redis.hdel(window, field)
            self.redis.hset(window, f"{field[0]}{int(field[1:]) - seconds}", count)

    def held(self) -> int:
        """Count the permits that are held."""
        return sum(int(self.redis.zcard(key)) for key in self.redis.keys("*:held"))

    def waiting(self) -> int:
        """Count the calls that stand in line."""
        return sum(int(self.redis.zcard(key)) for key in self.redis.keys("*:waiting"))


@pytest.fixture
async def two(redis_url: str) -> AsyncIterator[Two]:
    redis = Redis.from_url(redis_url, decode_responses=True)
    async with open_limiter(redis_url, "one") as one, open_limiter(redis_url, "other") as other:
        yield Two(one, other, redis)
    redis.close()


class Calls:
    """Calls that run until they are let go; `begun` says in which order they were permitted."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.running = 0
        self.most = 0
        self.tasks: list[asyncio.Task[None]] = []
        self._done = asyncio.Semaphore(0)

    def start(
        self,
        limiter: ModelLimiter,
        name: str,
        ticket: Ticket = NO_TICKET,
        target: ModelTarget = ONE_AT_A_TIME,
    ) -> asyncio.Task[None]:
        """Make a call as soon as it is permitted."""
        task = asyncio.create_task(self._call(limiter, name, ticket, target))
        self.tasks.append(task)
        return task

    async def _call(
        self, limiter: ModelLimiter, name: str, ticket: Ticket, target: ModelTarget
    ) -> None:
        async with limiter.permit(target, ticket):
            self.begun.append(name)
            self.running += 1
            self.most = max(self.most, self.running)
            await self._done.acquire()
            self.running -= 1

    async def begin(self, count: int) -> None:
        """Wait until so many have begun."""
        await wait_until_async(
            lambda: len(self.begun) >= count, message=f"{self.begun}, not {count}"
        )

    def end(self, count: int = 1) -> None:
        """Let so many end."""
        for _ in range(count):
            self._done.release()

    async def end_all(self) -> None:
        """Let all end, and wait for it."""
        self.end(len(self.tasks))
        await asyncio.gather(*self.tasks)


async def in_line(two: Two, count: int) -> None:
    """Wait until so many stand in line."""
    await wait_until_async(lambda: two.waiting() == count, message=f"not {count} wait")


async def test_so_many_at_once_and_no_more(two: Two) -> None:
    target, calls = replace(TARGET, limits=Limits(max_in_flight=3)), Calls()
    for number in range(24):
        calls.start((two.one, two.other)[number % 2], str(number), target=target)
    for ended in range(21):
        await calls.begin(ended + 3)
        calls.end()
    await calls.end_all()
    assert calls.most == 3
    await wait_until_async(lambda: not two.held(), message="a permit is still held")


async def test_permits_come_back_however_a_call_ends(two: Two) -> None:
    with pytest.raises(ValueError, match="a defect"):
        async with two.one.permit(ONE_AT_A_TIME, NO_TICKET):
            raise ValueError("a defect")
    calls = Calls()
    cut_off = calls.start(two.one, "cut off")
    await calls.begin(1)
    gave_up = calls.start(two.one, "gave up")
    await in_line(two, 1)
    gave_up.cancel()
    cut_off.cancel()
    async with asyncio.timeout(5), two.other.permit(ONE_AT_A_TIME, NO_TICKET):
        assert calls.begun == ["cut off"]


async def test_models_do_not_wait_for_each_other(two: Two) -> None:
    calls = Calls()
    calls.start(two.one, "first")
    await calls.begin(1)
    calls.start(two.one, "waits")
    await in_line(two, 1)
    calls.start(two.one, "other model", target=OTHER_MODEL)
    await calls.begin(2)
    assert calls.begun == ["first", "other model"]
    await calls.end_all()


async def test_one_share_s_many_calls_do_not_delay_another_s_few(two: Two) -> None:
    calls = Calls()
    calls.start(two.one, "running", Ticket(share="many"))
    await calls.begin(1)
    for number in range(10):
        calls.start(two.one, f"many {number}", Ticket(share="many"))
    await in_line(two, 10)
    for number in range(2):
        calls.start(two.other, f"few {number}", Ticket(share="few"))
    await in_line(two, 12)
    for count in range(2, 7):
        calls.end()
        await calls.begin(count)
    assert [name for name in calls.begun if "few" in name] == ["few 0", "few 1"]
    assert calls.begun.index("few 1") <= 4
    await calls.end_all()
    many = [name for name in calls.begun if name.startswith("many ")]
    assert many == [f"many {number}" for number in range(10)]


async def test_who_came_first_goes_first_whatever_its_process_is_called(two: Two) -> None:
    """Most shares have one call: all of them start together."""
    calls = Calls()
    calls.start(two.one, "running", Ticket(share="running"))
    await calls.begin(1)
    for number in range(12):
        limiter = (two.other, two.one)[number % 3 == 0]
        calls.start(limiter, str(number), Ticket(share=str(number)))
        await in_line(two, number + 1)
    await calls.end_all()
    assert calls.begun == ["running", *map(str, range(12))]


async def test_shares_are_equal_in_tokens_not_in_calls(two: Two) -> None:
    calls = Calls()
    calls.start(two.one, "running")
    await calls.begin(1)
    for number in range(2):
        calls.start(two.one, f"long {number}", Ticket(share="long", tokens=1000))
    await in_line(two, 2)
    for number in range(10):
        calls.start(two.other, f"short {number}", Ticket(share="short", tokens=100))
    await in_line(two, 12)
    await calls.end_all()
    order = calls.begun
    assert order.index("short 9") < order.index("long 1")
    assert order.index("long 0") < order.index("short 1")


async def test_who_waited_too_long_comes_back_to_its_place(redis_url: str, two: Two) -> None:
    calls = Calls()
    calls.start(two.one, "running", Ticket(share="a"))
    await calls.begin(1)
    calls.start(two.one, "a 1", Ticket(share="a"))
    await in_line(two, 1)
    parked = Ticket(share="a", place="turn-2")
    async with open_limiter(redis_url, "hasty", max_wait_s=0.3) as hasty:
        with pytest.raises(Deferred) as raised:
            async with hasty.permit(ONE_AT_A_TIME, parked):
                pass
    assert 1 < raised.value.delay_s < 10
    await in_line(two, 1)
    calls.start(two.one, "a 3", Ticket(share="a"))
    await in_line(two, 2)
    calls.start(two.other, "a 2, again", parked)
    await in_line(two, 3)
    await calls.end_all()
    assert calls.begun == ["running", "a 1", "a 2, again", "a 3"]
    assert not two.redis.keys("*:kept")


async def test_shares_that_all_left_the_line_come_back_to_it_as_equals(
    redis_url: str, two: Two
) -> None:
    """As turns that are parked at the same moment, each with several calls to make."""
    target, granted = replace(TARGET, limits=Limits(requests_per_minute=2)), []
    async with open_limiter(redis_url, "hasty", max_wait_s=0.3) as hasty:

        async def call(share: str) -> None:
            with contextlib.suppress(Deferred):
                async with hasty.permit(target, Ticket(share=share, place=f"turn-{share}")):
                    granted.append(share)

        for _ in range(3):
            await asyncio.gather(*map(call, "abc"))
            await in_line(two, 0)
            two.make_older(61)
    assert sorted(granted) == ["a", "a", "b", "b", "c", "c"]


async def test_who_is_cut_off_while_it_waits_comes_back_to_its_place(two: Two) -> None:
    """As a turn whose worker drains, for its next worker."""
    calls = Calls()
    calls.start(two.one, "running", Ticket(share="a"))
    await calls.begin(1)
    cut_off = calls.start(two.one, "cut off", Ticket(share="a", place="turn-2"))
    await in_line(two, 1)
    calls.start(two.one, "later", Ticket(share="a"))
    await in_line(two, 2)
    cut_off.cancel()
    calls.tasks.remove(cut_off)
    await in_line(two, 1)
    calls.start(two.other, "again", Ticket(share="a", place="turn-2"))
    await in_line(two, 2)
    await calls.end_all()
    assert calls.begun == ["running", "again", "later"]


async def test_who_comes_back_is_not_the_one_too_many(redis_url: str, two: Two) -> None:
    calls = Calls()
    calls.start(two.one, "running", Ticket(share="a"))
    await calls.begin(1)
    async with open_limiter(redis_url, "small", max_waiting=1) as small:
        first = calls.start(small, "first", Ticket(share="a", place="turn-1"))
        await in_line(two, 1)
        first.cancel()
        await in_line(two, 0)
        later = calls.start(small, "later", Ticket(share="a", place="turn-2"))
        await in_line(two, 1)
        again = calls.start(small, "again", Ticket(share="a", place="turn-1"))
        await asyncio.wait([later], timeout=5)
        assert isinstance(later.exception(), Deferred)
        calls.end(2)
        await again
    await asyncio.gather(calls.tasks[0])


async def test_wiped_redis_is_told_anew(two: Two) -> None:
    """Who holds permits and who waits for them, by each process at its next look."""
    calls = Calls()
    calls.start(two.one, "running")
    await calls.begin(1)
    calls.start(two.one, "waits")
    calls.start(two.one, "waits too")
    await in_line(two, 2)
    two.redis.flushall()
    await in_line(two, 2)
    calls.end()
    await calls.begin(2)
    calls.end()
    await calls.begin(3)
    assert calls.most == 1
    await calls.end_all()


class DeafScript:
    """Loses the answer of every other look, after it took effect."""

    def __init__(self, script: Callable[..., Awaitable[object]]) -> None:
        self._script = script
        self._looks = 0

    async def __call__(self, **options: object) -> object:
        answer = await self._script(**options)
        self._looks += 1
        if self._looks % 2:
            raise RedisConnectionError("the answer was lost")
        return answer


async def test_lost_answers_cost_no_permit_and_count_nothing_twice(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limiter_module, "AWAY_S", 0.0)
    # So that nothing is granted without Redis.
    monkeypatch.setattr(_Share, "take", lambda *_: 0.05)
    target = replace(TARGET, limits=Limits(max_in_flight=1, tokens_per_minute=10_000))
    for limiter in (two.one, two.other):
        line = limiter._line(target)
        monkeypatch.setattr(line, "_script", DeafScript(line._script))
    calls = Calls()
    for number in range(6):
        calls.start((two.one, two.other)[number % 2], str(number), Ticket(tokens=10), target)
    await calls.end_all()
    assert calls.most == 1
    async with two.one.permit(target, Ticket(tokens=10)) as permit:
        permit.settle(Usage(input_tokens=100, output_tokens=100))
    await wait_until_async(lambda: not two.held(), message="a permit is still held")
    assert two.window() == {"r": 7, "t": 6 * 10 + 200}


async def test_grant_that_was_lost_with_its_waiter_is_given_back(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limiter_module, "AWAY_S", 0.2)
    monkeypatch.setattr(_Share, "take", lambda *_: 0.05)
    line = two.one._line(ONE_AT_A_TIME)
    monkeypatch.setattr(line, "_script", DeafScript(line._script))
    calls = Calls()
    task = calls.start(two.one, "gave up")
    await wait_until_async(lambda: two.held() == 1, message="nothing was granted")
    assert calls.begun == []
    task.cancel()
    async with asyncio.timeout(5), two.other.permit(ONE_AT_A_TIME, NO_TICKET):
        pass


async def test_without_redis_no_more_wait_than_may_either(own_redis: RedisServer) -> None:
    own_redis.kill()
    calls = Calls()
    async with open_limiter(own_redis.url, max_waiting=1) as limiter:
        calls.start(limiter, "running")
        await calls.begin(1)
        tasks = [calls.start(limiter, str(number)) for number in range(2)]
        await asyncio.wait(tasks, timeout=10, return_when=asyncio.FIRST_EXCEPTION)
        assert isinstance(tasks[1].exception(), Deferred)
        calls.end(2)
        await asyncio.gather(calls.tasks[0], tasks[0])


async def test_time_in_line_is_not_the_call_s(two: Two) -> None:
    calls = Calls()
    calls.start(two.one, "running")
    await calls.begin(1)

    async def call() -> None:
        async with (
            asyncio.timeout(0.4) as timeout,
            two.other.permit(ONE_AT_A_TIME, Ticket(timeout=timeout)),
        ):
            calls.begun.append("in time")
            await asyncio.Event().wait()

    asyncio.get_running_loop().call_later(0.8, calls.end)
    with pytest.raises(TimeoutError):
        await call()
    assert calls.begun == ["running", "in time"]


async def test_no_more_wait_than_may(redis_url: str, two: Two) -> None:
    calls = Calls()
    calls.start(two.one, "running")
    await calls.begin(1)
    async with open_limiter(redis_url, "small", max_waiting=2) as small:
        tasks = [calls.start(small, str(number)) for number in range(5)]
        done, _ = await asyncio.wait(tasks, timeout=5, return_when=asyncio.FIRST_EXCEPTION)
        await wait_until_async(
            lambda: sum(task.done() for task in tasks) == 3, message="not three were deferred"
        )
        assert all(isinstance(task.exception(), Deferred) for task in done)
        assert not any(task.done() for task in tasks[:2])
        calls.end(3)
        await asyncio.gather(*tasks[:2], calls.tasks[0])


async def test_so_many_a_minute_and_no_more(two: Two) -> None:
    target, calls = replace(TARGET, limits=Limits(requests_per_minute=4)), Calls()
    for number in range(6):
        calls.start((two.one, two.other)[number % 2], str(number), target=target)
    await calls.begin(4)
    calls.end(4)
    await in_line(two, 2)
    two.make_older(50)
    calls.start(two.one, "6", target=target)
    await in_line(two, 3)
    two.make_older(20)
    await calls.end_all()
    assert len(calls.begun) == 7
    assert two.window()["r"] == 3


async def test_tokens_are_counted_as_they_were_used(two: Two) -> None:
    target, calls = replace(TARGET, limits=Limits(tokens_per_minute=1000)), Calls()
    async with two.one.permit(target, Ticket(tokens=100)) as permit:
        permit.settle(Usage(input_tokens=300, output_tokens=400))
    await wait_until_async(
        lambda: two.window()["t"] == 700,
        message="the tokens used were not counted",
    )
    calls.start(two.other, "fits", Ticket(tokens=300), target)
    await calls.begin(1)
    calls.start(two.other, "does not", Ticket(tokens=1), target)
    await in_line(two, 1)
    two.make_older(61)
    await calls.end_all()


async def test_call_larger_than_the_limit_goes_alone(two: Two) -> None:
    target, calls = replace(TARGET, limits=Limits(tokens_per_minute=1000)), Calls()
    calls.start(two.one, "small", Ticket(tokens=10), target)
    await calls.begin(1)
    calls.start(two.one, "large", Ticket(tokens=5000), target)
    await in_line(two, 1)
    two.make_older(61)
    await calls.end_all()
    assert calls.begun == ["small", "large"]


@pytest.mark.parametrize("limits", [Limits(), Limits(max_in_flight=10)])
async def test_gate_closes_for_everybody(two: Two, limits: Limits) -> None:
    target, calls = replace(TARGET, limits=limits), Calls()
    two.one.close(target, 60)
    await wait_until_async(lambda: two.redis.keys("*:gate"), message="the gate stays open")
    two.one.close(target, 1)  # a shorter word does not open it
    calls.start(two.other, "waits", target=target)
    calls.start(two.one, "waits too", target=target)
    await in_line(two, 2)
    assert 50 < int(two.redis.ttl(two.key("gate"))) <= 60
    two.redis.pexpire(two.key("gate"), 50)
    await calls.end_all()


async def test_permits_and_places_of_a_lost_process_are_free_again(
    redis_url: str, two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limiter_module, "PERMIT_TTL_S", 1.0)
    monkeypatch.setattr(limiter_module, "PROCESS_TTL_S", 1.0)
    monkeypatch.setattr(limiter_module, "RENEW_S", 0.2)
    calls = Calls()
    async with open_limiter(redis_url, "lost") as lost:
        calls.start(lost, "lost", Ticket(share="a"))
        await calls.begin(1)
        calls.start(lost, "lost too", Ticket(share="a"))
        await in_line(two, 1)
        line = lost._line(ONE_AT_A_TIME)
        assert line.pump is not None
        monkeypatch.setattr(line, "_wake", lambda: None)
        line.pump.cancel()
        for task in calls.tasks:
            task.cancel()
        await asyncio.gather(*calls.tasks, return_exceptions=True)
        assert two.waiting() == 1
    calls = Calls()
    calls.start(two.one, "goes on")
    await calls.begin(1)
    await calls.end_all()
    assert two.waiting() == 0


async def test_permit_is_kept_as_long_as_its_call_runs(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limiter_module, "PERMIT_TTL_S", 0.6)
    monkeypatch.setattr(limiter_module, "RENEW_S", 0.1)
    calls = Calls()
    calls.start(two.one, "long")
    await calls.begin(1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.5), two.other.permit(ONE_AT_A_TIME, NO_TICKET):
            pass
    await calls.end_all()


async def test_without_redis_each_keeps_to_its_share(own_redis: RedisServer) -> None:
    target = replace(TARGET, limits=Limits(max_in_flight=4))
    async with open_limiter(own_redis.url, "one") as one, open_limiter(own_redis.url, "b") as other:
        for limiter in (one, other, one):
            async with limiter.permit(target, NO_TICKET):
                pass
        own_redis.kill()
        calls = Calls()
        for number in range(4):
            calls.start(one, str(number), target=target)
        await calls.begin(2)
        assert calls.running == 2
        calls.end()
        await calls.begin(3)
        own_redis.start()
        await calls.begin(4)
        await calls.end_all()
        assert calls.most <= 4


async def test_without_redis_calls_are_spread_over_the_minute(own_redis: RedisServer) -> None:
    target = replace(TARGET, limits=Limits(requests_per_minute=120))
    own_redis.kill()
    times = []
    async with open_limiter(own_redis.url) as limiter:
        for _ in range(3):
            async with limiter.permit(target, NO_TICKET):
                times.append(asyncio.get_running_loop().time())
        assert times[2] - times[0] >= 0.95
        limiter.close(target, 600)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1), limiter.permit(target, NO_TICKET):
                pass
