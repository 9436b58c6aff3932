"""The leases that this process holds, shared by its event loop and its heartbeat thread."""

import asyncio
import threading

import structlog

from shared.errors import HandedOver, LeaseLostError
from shared.turn_state import Fence, Inbox
from workers.runtime.lease import Lease

log = structlog.get_logger()


class HeldLeases:
    """All leases of the process. All but `fences` belong to the event loop."""

    def __init__(self) -> None:
        self._leases: dict[Fence, Lease] = {}
        self._lock = threading.Lock()
        self._is_draining = False
        self._is_grace_over = False

    @property
    def is_draining(self) -> bool:
        """Whether the process takes no more turns."""
        return self._is_draining

    def add(self, lease: Lease) -> None:
        """Have the lease renewed from now on."""
        with self._lock:
            self._leases[lease.fence] = lease
        if self._is_draining:
            lease.drain()
        if self._is_grace_over:
            lease.stop(HandedOver())

    def remove(self, lease: Lease) -> None:
        """Stop renewing the lease."""
        with self._lock:
            self._leases.pop(lease.fence, None)

    def fences(self) -> list[Fence]:
        """Return the fences of all held leases. Safe in any thread."""
        with self._lock:
            return list(self._leases)

    def take_renewal(
        self,
        asked: list[Fence],
        renewed: dict[Fence, Inbox | None],
        renewed_at: float,
    ) -> None:
        """Pass a renewal's outcome to the leases it asked for; those that are missing are lost.

        renewed: None where the lease is held, but could not be renewed this time.
        """
        for fence in asked:
            lease = self._leases.get(fence)
            if lease is None:
                continue
            if fence not in renewed:
                lease.stop(LeaseLostError())
            elif (inbox := renewed[fence]) is not None:
                lease.note(inbox, renewed_at=renewed_at)

    def drain(self, grace_s: float) -> None:
        """Have all turns handed over: at journal points for grace_s, then wherever they are.

        Returns at once. It holds for turns, too, whose claims are under way.
        """
        self._is_draining = True
        log.info("worker_draining", turns=len(self._leases))
        for lease in list(self._leases.values()):
            lease.drain()
        asyncio.get_running_loop().call_later(grace_s, self._end_grace)

    def _end_grace(self) -> None:
        self._is_grace_over = True
        for lease in list(self._leases.values()):
            lease.stop(HandedOver())
