"""A heartbeat that could not renew its leases tries again before they lapse."""

import asyncio
import threading
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from shared.ids import TurnId
from shared.turn_state import Fence, Inbox
from workers.runtime.heartbeat import RETRY_S, Heartbeat
from workers.runtime.held import HeldLeases
from workers.runtime.lease import Lease

LEASE_S = 15.0
BEATS = 3


class CountedPauses(threading.Event):
    """Lets no time pass and notes how long it would have been; set after some pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Note a pause."""
        self.pauses.append(timeout)
        return len(self.pauses) > BEATS


@pytest.mark.parametrize(
    ("holds", "pause_s"),
    [(True, RETRY_S), (False, LEASE_S / 3)],
    ids=["failed", "nothing to renew"],
)
async def test_pause_after_a_beat(tmp_path: Path, *, holds: bool, pause_s: float) -> None:
    """The store has no tables: whatever is to be renewed cannot be."""
    held = HeldLeases()
    if holds:
        inbox = Inbox(pending_injections=0, is_cancel_requested=False)
        held.add(Lease(Fence(TurnId("turn_1"), 1), lease_s=LEASE_S, inbox=inbox))
    heartbeat = Heartbeat(
        create_engine(f"sqlite:///{tmp_path}/empty"),
        held,
        loop=asyncio.get_running_loop(),
        owner="worker",
        lease_s=LEASE_S,
        ready_file=tmp_path / "ready",
    )
    heartbeat._stop = pauses = CountedPauses()

    heartbeat.start()
    heartbeat.stop()

    assert pauses.pauses == [LEASE_S / 3] + [pause_s] * BEATS
