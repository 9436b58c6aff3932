"""The sweep: finds in the database what no doorbell will move, and rings or ends it.

It makes every other message optional: a lost task, a lost worker, a wiped broker. Every worker
process sweeps; row locks are skipped, so that they share the work.
"""

import asyncio
import random
import time
from functools import partial

import structlog
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError
from sqlalchemy import Connection

from shared.broker import Doorbell
from shared.database import Database, StorageError
from shared.event_writer import EventStreams, GuestWriter
from shared.repositories import delegated_calls, endings, leases
from shared.repositories.endings import EndedTurn, Failure
from shared.repositories.leases import Doomed
from shared.task_names import TOOLS_QUEUE, TURNS_QUEUE, TurnTask
from shared.turn_end import announce_end, announce_settled

log = structlog.get_logger()

BATCH = 200

PAST_DEADLINE = Failure(
    type="deadline_exceeded",
    message="The turn reached its deadline before it was answered: post it again, or raise"
    " TURNMILL_TURN_TIMEOUT_S",
)


class Sweep:
    """One process's sweep. `run` belongs to the event loop."""

    def __init__(
        self,
        database: Database,
        streams: EventStreams,
        doorbell: Doorbell,
        *,
        pause_s: float,
        lease_s: float,
        max_crashes: int,
    ) -> None:
        self._database = database
        self._streams = streams
        self._doorbell = doorbell
        self._pause_s = pause_s
        self._lease_s = lease_s
        self._max_crashes = max_crashes
        self._trusts_leases_at = 0.0

    async def run(self) -> None:
        """Sweep every pause_s, jittered by a third, until cancelled."""
        while True:
            await asyncio.sleep(self._pause_s * random.uniform(2 / 3, 4 / 3))  # noqa: S311
            await self.sweep()

    async def sweep(self) -> None:
        """Sweep once.

        After an error of the database the leases it holds may have lapsed only because nobody
        could renew them: for one lease period such turns are left to their owners.
        """
        with_lapsed = time.monotonic() >= self._trusts_leases_at
        try:
            await self._end_doomed(with_lapsed=with_lapsed)
            await self._settle_calls(with_lapsed=with_lapsed)
            await self._ring(with_lapsed=with_lapsed)
            await self._ring_tools(with_lapsed=with_lapsed)
        except StorageError as error:
            self._trusts_leases_at = time.monotonic() + self._lease_s
            log.warning("sweep_failed", error=str(error))

    async def _ring(self, *, with_lapsed: bool) -> None:
        is_empty = await self._is_queue_empty(TURNS_QUEUE)
        if is_empty is None:
            return  # nobody would hear the bells
        bells = await self._database.write(
            lambda connection: leases.take_due_doorbells(
                connection,
                limit=BATCH,
                is_queue_empty=is_empty,
                with_lapsed=with_lapsed,
            ),
        )
        for bell in bells:
            log.info("turn_rung_again", turn_id=bell.turn_id, attempt=bell.attempt)
            await self._doorbell.ring(
                TurnTask(
                    turn_id=bell.turn_id,
                    conversation_id=bell.conversation_id,
                    attempt=bell.attempt,
                ),
            )

    async def _ring_tools(self, *, with_lapsed: bool) -> None:
        is_empty = await self._is_queue_empty(TOOLS_QUEUE)
        if is_empty is None:
            return
        tasks = await self._database.write(
            lambda connection: delegated_calls.take_due_tasks(
                connection,
                limit=BATCH,
                max_attempts=self._max_crashes,
                is_queue_empty=is_empty,
                with_lapsed=with_lapsed,
            ),
        )
        for task in tasks:
            log.info("tool_rung_again", tool_call_id=task.tool_call_id, turn_id=task.turn_id)
            await self._doorbell.ring(task)

    async def _is_queue_empty(self, queue: str) -> bool | None:
        """Tell whether no doorbell waits; None if the broker cannot be asked."""
        try:
            return await self._doorbell.count_waiting(queue) == 0
        except (OperationalError, RedisError, OSError) as error:
            log.warning("queue_not_counted", error=type(error).__name__)
            return None

    async def _settle_calls(self, *, with_lapsed: bool) -> None:
        """Settle tool calls that were not approved in time, or whose worker was lost for good."""
        due = await self._database.read(
            lambda connection: delegated_calls.find_due_calls(
                connection,
                limit=BATCH,
                max_attempts=self._max_crashes,
                with_lapsed=with_lapsed,
            ),
        )
        for call in due:
            settled = await self._database.write(
                partial(
                    delegated_calls.settle_due_call,
                    due=call,
                    max_attempts=self._max_crashes,
                ),
            )
            if settled is not None:
                writer = GuestWriter(self._streams, settled.turn_id)
                await announce_settled(settled, writer=writer, doorbell=self._doorbell)

    async def _end_doomed(self, *, with_lapsed: bool) -> None:
        doomed = await self._database.read(
            lambda connection: leases.find_doomed(
                connection,
                limit=BATCH,
                with_lapsed=with_lapsed,
            ),
        )
        for turn in doomed:
            ended = await self._database.write(partial(_end, turn))
            if ended is not None:
                await announce_end(
                    ended,
                    writer=GuestWriter(self._streams, ended.turn.id),
                    doorbell=self._doorbell,
                )


def _end(turn: Doomed, connection: Connection) -> EndedTurn | None:
    if turn.is_cancel_requested:
        return endings.cancel_unheld_turn(connection, turn.turn_id)
    return endings.fail_unheld_turn(connection, turn.turn_id, PAST_DEADLINE)
