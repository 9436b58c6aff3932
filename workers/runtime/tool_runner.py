"""Running tool calls that are tasks of their own, one at a time, in a process that may burn CPU."""

import asyncio
from typing import Any

import structlog

from shared.broker import Doorbell
from shared.database import Database, StorageError
from shared.event_writer import EventStreams, GuestWriter
from shared.repositories import delegated_calls
from shared.repositories.delegated_calls import CallClaim
from shared.repositories.tool_calls import StoredToolCall
from shared.settings import Settings
from shared.task_names import ToolTask
from shared.turn_end import announce_settled
from shared.turn_state import ToolCallState
from workers.tools.execution import run_tool
from workers.tools.outcome import ToolOutcome
from workers.tools.registry import ToolRegistry
from workers.tools.tool import ToolContext

log = structlog.get_logger()

STORE_RETRY_S = 0.5


class ToolRunner:
    """Runs tool calls of one process on its event loop."""

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        settings: Settings,
        database: Database,
        streams: EventStreams,
        doorbell: Doorbell,
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._database = database
        self._streams = streams
        self._doorbell = doorbell

    async def run(self, task: ToolTask) -> str:
        """Answer a doorbell; return in one word what came of it.

        Safe to deliver any number of times: only one claim wins.
        """
        claim = await self._claim(task)
        if claim is None:
            return "not_claimed"
        call = claim.call
        structlog.contextvars.bind_contextvars(turn_id=claim.turn_id, tool_call_id=call.id)
        outcome = await self._run_held(claim)
        if outcome is None:
            log.info("tool_given_up", tool=call.name)
            return "given_up"
        finished = call.finished(
            state=ToolCallState.DONE,
            result=outcome.content,
            is_error=outcome.is_error,
            elapsed_s=outcome.elapsed_s,
        )
        return await self._finish(claim, finished)

    async def _claim(self, task: ToolTask) -> CallClaim | None:
        try:
            return await self._database.write(
                lambda connection: delegated_calls.claim_call(
                    connection,
                    task,
                    lease_s=self._settings.lease_s,
                    max_attempts=self._settings.max_crashes,
                ),
            )
        except StorageError as error:
            log.warning("claim_failed", error=str(error))
            return None

    async def _run_held(self, claim: CallClaim) -> ToolOutcome | None:
        """Run the call as long as its lease can be renewed; None if it was lost."""
        call = claim.call
        context = ToolContext(
            tool_call_id=call.id,
            turn_id=claim.turn_id,
            conversation_id=claim.conversation_id,
            read=self._database.read,
        )
        running = asyncio.create_task(
            run_tool(
                self._registry,
                call.name,
                call.arguments,
                context,
                timeout_s=call.timeout_s or self._settings.tool_timeout_s,
            ),
        )
        holding = asyncio.create_task(self._hold(claim))
        await asyncio.wait({running, holding}, return_when=asyncio.FIRST_COMPLETED)
        await _cancel(holding)
        if running.done():
            return running.result()
        await _cancel(running)
        return None

    async def _hold(self, claim: CallClaim) -> None:
        """Renew the lease every third of its length. Returns when it is lost."""
        lease_s = self._settings.lease_s
        while True:
            await asyncio.sleep(lease_s / 3)
            try:
                is_held = await self._database.write(
                    lambda connection: delegated_calls.renew_call(
                        connection,
                        claim,
                        lease_s=lease_s,
                    ),
                )
            except StorageError as error:
                # A lapsed lease that nobody has taken may still be renewed.
                log.warning("renewal_failed", error=str(error))
                continue
            if not is_held:
                return

    async def _finish(self, claim: CallClaim, finished: StoredToolCall) -> str:
        """Write the result down, trying as long as nobody has taken the call."""
        while True:
            try:
                settled = await self._database.write(
                    lambda connection: delegated_calls.finish_call(connection, claim, finished),
                )
                break
            except StorageError as error:
                log.warning("result_not_stored", error=str(error))
                await asyncio.sleep(STORE_RETRY_S)
        if settled is None:
            log.info("tool_given_up", tool=finished.name)
            return "given_up"
        await announce_settled(
            settled,
            writer=GuestWriter(self._streams, settled.turn_id),
            doorbell=self._doorbell,
        )
        log.info("tool_settled", tool=finished.name, is_error=finished.is_error)
        return "done"


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})
