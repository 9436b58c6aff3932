"""A lease interrupts work for each reason to stop, and only then."""

import asyncio
import time

import pytest

from shared.errors import Cancelled, DeadlinePassed, HandedOver, LeaseLostError, Stop
from shared.ids import TurnId
from shared.turn_state import Fence, Inbox
from workers.runtime.held import HeldLeases
from workers.runtime.lease import Lease

QUIET = Inbox(pending_injections=0, is_cancel_requested=False)
CANCEL = Inbox(pending_injections=0, is_cancel_requested=True)


def make_lease(attempt: int = 1, lease_s: float = 15.0) -> Lease:
    return Lease(Fence(TurnId("turn_1"), attempt), lease_s=lease_s, inbox=QUIET)


async def forever(was_cancelled: asyncio.Event) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        was_cancelled.set()


@pytest.mark.parametrize("reason", [Cancelled(), DeadlinePassed(), HandedOver(), LeaseLostError()])
async def test_stop_interrupts_running_work(reason: Stop | LeaseLostError) -> None:
    lease = make_lease()
    was_cancelled = asyncio.Event()
    asyncio.get_running_loop().call_soon(lease.stop, reason)

    with pytest.raises(type(reason)):
        await lease.run(forever(was_cancelled))

    assert was_cancelled.is_set()


async def test_work_that_is_done_gives_its_result_or_its_error() -> None:
    lease = make_lease()

    async def fail() -> None:
        raise KeyError("x")

    assert await lease.run(asyncio.sleep(0, "result")) == "result"
    with pytest.raises(KeyError):
        await lease.run(fail())


async def test_cancel_seen_by_a_fenced_write_stops_the_work() -> None:
    lease = make_lease()

    lease.note(CANCEL, renewed_at=time.monotonic())

    with pytest.raises(Cancelled):
        lease.check()


async def test_tool_is_not_started_on_an_old_renewal() -> None:
    lease = make_lease(lease_s=15.0)
    lease.check_before_tool()

    lease._renewed_at = time.monotonic() - 12.5

    with pytest.raises(LeaseLostError):
        lease.check_before_tool()
    lease.note(QUIET, renewed_at=time.monotonic())
    lease.check_before_tool()


async def test_renewal_that_misses_a_lease_stops_only_that_one() -> None:
    held = HeldLeases()
    kept, lost = make_lease(1), Lease(Fence(TurnId("turn_2"), 4), lease_s=15, inbox=QUIET)
    held.add(kept)
    held.add(lost)

    held.take_renewal(held.fences(), {kept.fence: QUIET}, time.monotonic())

    kept.check()
    with pytest.raises(LeaseLostError):
        lost.check()


async def test_drain_lets_go_at_the_next_journal_point() -> None:
    held = HeldLeases()
    lease = make_lease()
    held.add(lease)

    held.drain(grace_s=30)

    lease.check_stopped()
    with pytest.raises(HandedOver):
        lease.check()


async def test_drain_interrupts_what_outlasts_its_grace() -> None:
    held = HeldLeases()
    lease = make_lease()
    held.add(lease)

    held.drain(grace_s=0.01)

    with pytest.raises(HandedOver):
        await asyncio.wait_for(lease.run(forever(asyncio.Event())), 5)


async def test_turn_claimed_after_the_grace_is_stopped_at_once() -> None:
    held = HeldLeases()
    first, late = make_lease(1), Lease(Fence(TurnId("turn_2"), 1), lease_s=15, inbox=QUIET)
    held.add(first)
    held.drain(grace_s=0)
    with pytest.raises(HandedOver):
        await asyncio.wait_for(first.run(forever(asyncio.Event())), 5)

    held.add(late)

    with pytest.raises(HandedOver):
        late.check_stopped()


async def test_tool_on_record_as_started_starts_in_a_drain_too() -> None:
    lease = make_lease()
    lease.drain()
    lease.check_before_tool()
    with pytest.raises(HandedOver):
        lease.check()


async def test_turn_claimed_during_a_drain_is_handed_over_too() -> None:
    held = HeldLeases()
    held.drain(grace_s=30)

    lease = make_lease()
    held.add(lease)

    lease.check_stopped()
    with pytest.raises(HandedOver):
        lease.check()


async def test_turn_claimed_during_a_drain_that_held_nothing_has_no_more_than_its_grace() -> None:
    """Its claim was under way: what it may start is cut off as all else is."""
    held = HeldLeases()
    held.drain(grace_s=0.01)

    lease = make_lease()
    held.add(lease)

    with pytest.raises(HandedOver):
        await asyncio.wait_for(lease.run(forever(asyncio.Event())), 5)
