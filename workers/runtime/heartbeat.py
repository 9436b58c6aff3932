"""The heartbeat: a thread that renews the process's leases while its event loop is alive.

It has a connection of its own, so that neither a busy loop nor a busy pool costs a lease. A
loop that has stopped ticking loses its leases on purpose: nobody would do the work.
"""

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from shared.repositories import leases
from shared.turn_state import Fence, Inbox
from workers.runtime.held import HeldLeases

log = structlog.get_logger()

TICK_S = 0.5
# After a renewal that failed: the lease may have little time left.
RETRY_S = 1.0


class Heartbeat:
    """Renews leases every third of their length, or sooner after a failure.

    `tick` runs on the loop.
    """

    def __init__(
        self,
        engine: Engine,
        held: HeldLeases,
        *,
        loop: asyncio.AbstractEventLoop,
        owner: str,
        lease_s: float,
        ready_file: Path,
    ) -> None:
        self._engine = engine
        self._held = held
        self._loop = loop
        self._owner = owner
        self._lease_s = lease_s
        self._ready_file = ready_file
        self._ticked_at = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start renewing."""
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing and wait for the thread."""
        self._stop.set()
        self._thread.join()
        self._engine.dispose()

    async def tick(self) -> None:
        """Show that the loop is alive, until cancelled."""
        while True:
            self._ticked_at = time.monotonic()
            await asyncio.sleep(TICK_S)

    def _run(self) -> None:
        try:
            self._beat_until_stopped()
        except Exception:
            # Without a heartbeat every lease would lapse unnoticed: better no process than this.
            log.exception("heartbeat_died")
            os.kill(os.getpid(), signal.SIGTERM)
            raise

    def _beat_until_stopped(self) -> None:
        pause_s = self._lease_s / 3
        while not self._stop.wait(pause_s):
            pause_s = self._lease_s / 3
            silence_s = time.monotonic() - self._ticked_at
            if silence_s > self._lease_s:
                log.error("event_loop_stuck", silence_s=round(silence_s, 1))
                continue
            if self._ready_file.exists():
                self._ready_file.touch()
            if not self._beat():
                pause_s = min(RETRY_S, pause_s)

    def _beat(self) -> bool:
        """Renew all leases; tell whether that could be done."""
        asked = self._held.fences()
        if not asked:
            return True
        sent_at = time.monotonic()
        try:
            renewed = self._renew(asked)
        except DBAPIError as error:
            log.warning("heartbeat_failed", leases=len(asked), error=type(error.orig).__name__)
            return False
        self._loop.call_soon_threadsafe(self._held.take_renewal, asked, renewed, sent_at)
        return True

    def _renew(self, asked: list[Fence]) -> dict[Fence, Inbox | None]:
        with self._engine.begin() as connection:
            return leases.renew_leases(
                connection,
                asked,
                owner=self._owner,
                lease_s=self._lease_s,
            )
