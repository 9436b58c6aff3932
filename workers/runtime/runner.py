"""Running one turn: claim it, hand it to the engine, and settle whatever comes of that."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import structlog
from sqlalchemy.exc import IntegrityError

from shared import redis_keys
from shared.broker import Doorbell
from shared.control import parse_control
from shared.database import Database, StorageError
from shared.errors import (
    Cancelled,
    DeadlinePassed,
    Deferred,
    HandedOver,
    LeaseLostError,
    Parked,
    TurnmillError,
)
from shared.event_writer import EventStreams, EventWriter
from shared.events import Answer, Event, Status
from shared.ids import TurnId
from shared.repositories import leases, turns
from shared.repositories.endings import Failure
from shared.repositories.turns import ClaimedTurn, StreamOwner
from shared.settings import Settings
from shared.subscriptions import Subscriptions
from shared.task_names import TurnTask
from shared.turn_state import TurnStatus
from workers.runtime.held import HeldLeases
from workers.runtime.lease import Lease
from workers.runtime.progress import Progress
from workers.runtime.sweep import PAST_DEADLINE
from workers.runtime.turn_run import TurnRun

log = structlog.get_logger()

# Works on the turn until it has completed it; what it raises says how else it ended.
Engine = Callable[[TurnRun, Progress], Awaitable[None]]

RELEASE_RETRY_S = 0.5


class TurnRunner:
    """Runs turns of one process on its event loop."""

    def __init__(
        self,
        engine: Engine,
        *,
        settings: Settings,
        owner: str,
        database: Database,
        streams: EventStreams,
        subscriptions: Subscriptions,
        doorbell: Doorbell,
        held: HeldLeases,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._owner = owner
        self._database = database
        self._streams = streams
        self._subscriptions = subscriptions
        self._doorbell = doorbell
        self._held = held

    async def run(self, task: TurnTask) -> str:
        """Answer a doorbell; return in one word what came of it.

        Safe to deliver any number of times: only one claim wins.
        """
        structlog.contextvars.bind_contextvars(
            turn_id=task.turn_id,
            conversation_id=task.conversation_id,
        )
        if self._held.is_draining:
            await self._doorbell.ring(task)
            return "draining"
        claimed = await self._claim(task.turn_id)
        if claimed is None:
            return "not_claimed"
        lease = Lease(claimed.fence, lease_s=self._settings.lease_s, inbox=claimed.inbox)
        self._held.add(lease)
        try:
            return await self._work(claimed, lease)
        finally:
            self._held.remove(lease)

    async def _claim(self, turn_id: TurnId) -> ClaimedTurn | None:
        try:
            return await self._database.write(
                lambda connection: turns.claim_turn(
                    connection,
                    turn_id,
                    owner=self._owner,
                    lease_s=self._settings.lease_s,
                    turn_timeout_s=self._settings.turn_timeout_s,
                ),
            )
        except IntegrityError:  # another turn of the conversation became active meanwhile
            return None
        except StorageError as error:
            log.warning("claim_failed", error=str(error))
            return None

    async def _work(self, claimed: ClaimedTurn, lease: Lease) -> str:
        progress = Progress()
        writer = EventWriter(
            self._streams,
            claimed.id,
            StreamOwner(epoch=claimed.stream_epoch, attempt=claimed.attempt),
            progress.unfinished,
        )
        run = TurnRun(
            claimed,
            lease,
            writer,
            database=self._database,
            doorbell=self._doorbell,
            lease_s=self._settings.lease_s,
            approval_timeout_s=self._settings.approval_timeout_s,
        )
        deadline = _stop_at_deadline(claimed, lease)
        try:
            outcome = await self._settle(run, progress)
        except StorageError as error:
            log.warning("turn_let_go", error=str(error))
            return await self._let_go(run)
        finally:
            deadline.cancel()
        log.info(
            "turn_settled",
            outcome=outcome,
            attempt=claimed.attempt,
            elapsed_s=round(progress.elapsed_s, 3),
        )
        return outcome

    async def _settle(self, run: TurnRun, progress: Progress) -> str:
        try:
            self._start(run)
            async with self._listen(run.turn.id, run.lease):
                await self._engine(run, progress)
        except (LeaseLostError, Parked) as error:
            return "parked" if isinstance(error, Parked) else "lease_lost"
        except Cancelled:
            await run.cancel(partial_answer=progress.answer_text, usage=progress.usage())
            return "cancelled"
        except HandedOver:
            await run.emit(*_take_back(progress))
            return await self._let_go(run)
        except Deferred as error:
            await run.emit(*_take_back(progress), _waits_for_model(run))
            await run.park(error.delay_s)
            return "parked"
        except StorageError:
            raise
        except (DeadlinePassed, TurnmillError) as error:
            await run.fail(_with_progress(_failure(error), progress))
            return "failed"
        except Exception:
            # The edge of the task: a defect of ours ends the turn instead of crashing it again, and
            # nobody has to wait until the lease lapses.
            failure = Failure(
                type="internal_error",
                message="The turn failed by a defect of the server: try again, and report it with"
                f" the id {run.turn.id}",
            )
            await run.fail(_with_progress(failure, progress))
            raise
        return "completed"

    def _start(self, run: TurnRun) -> None:
        turn = run.turn
        run.hold_back(Status(status=TurnStatus.RUNNING, attempt=turn.attempt))
        if turn.inbox.is_cancel_requested:
            raise Cancelled
        if turn.remaining_s <= 0:
            raise DeadlinePassed
        if turn.crashes > self._settings.max_crashes:
            raise CrashedTooOftenError(
                f"The turn's workers were lost {turn.crashes} times: it is not taken up again",
            )
        # A drain that began while the claim was under way: what it would begin is cut off.
        run.lease.check()

    async def _let_go(self, run: TurnRun) -> str:
        """Release the lease, trying until it would have lapsed, and ring for another worker."""
        give_up_at = time.monotonic() + self._settings.lease_s
        while True:
            try:
                is_released = await self._database.write(
                    lambda connection: leases.release_lease(connection, run.turn.fence),
                )
                break
            except StorageError:
                if time.monotonic() > give_up_at:
                    return "let_go"
                await asyncio.sleep(RELEASE_RETRY_S)
        if is_released:
            turn = run.turn
            await self._doorbell.ring(
                TurnTask(
                    turn_id=turn.id,
                    conversation_id=turn.conversation_id,
                    attempt=turn.attempt,
                ),
            )
        return "handed_over"

    def _listen(self, turn_id: TurnId, lease: Lease) -> AbstractAsyncContextManager[None]:
        def hear(payload: bytes | None) -> None:
            if payload is None:
                return  # every write reads the inbox, so nothing was missed
            message = parse_control(payload)
            if message.type == "cancel":
                lease.stop(Cancelled())
            else:
                lease.pending_injections += 1

        return self._subscriptions.listen(redis_keys.control_channel(turn_id), hear)


class CrashedTooOftenError(TurnmillError):
    """The turn's workers were lost too often."""

    code = "crashed"


def _stop_at_deadline(claimed: ClaimedTurn, lease: Lease) -> asyncio.TimerHandle:
    loop = asyncio.get_running_loop()
    return loop.call_later(max(claimed.remaining_s, 0), lease.stop, DeadlinePassed())


def _take_back(progress: Progress) -> tuple[Event, ...]:
    if not progress.answer_text:
        return ()
    return (Answer(status="restart", reason="handed_over"),)


def _waits_for_model(run: TurnRun) -> Event:
    return Status(
        status=TurnStatus.RUNNING,
        attempt=run.turn.attempt,
        reason="waiting_for_model",
    )


def _failure(error: DeadlinePassed | TurnmillError) -> Failure:
    if isinstance(error, DeadlinePassed):
        return PAST_DEADLINE
    return Failure(type=error.code, message=error.message)


def _with_progress(failure: Failure, progress: Progress) -> Failure:
    return Failure(
        type=failure.type,
        message=failure.message,
        partial_answer=progress.answer_text,
        usage=progress.usage(),
    )
