"""One attempt at a turn: its lease, its journal, its inbox and its end.

This is all that an engine (ReAct) sees of durability. Every write goes through the fence and
returns what waits for the turn; a lost lease, a cancel or a drain surface as exceptions.
"""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from shared.broker import Doorbell
from shared.database import Database
from shared.errors import LeaseLostError, Parked
from shared.event_writer import EventWriter
from shared.events import Event, Inject, Status
from shared.ids import ToolCallId
from shared.repositories import (
    conversations,
    delegated_calls,
    endings,
    injections,
    journal,
    leases,
    messages,
    summaries,
    tool_calls,
    turns,
)
from shared.repositories.delegated_calls import USER_SPOKE, Settled
from shared.repositories.endings import Completion, EndedTurn, Failure
from shared.repositories.injections import StoredInjection
from shared.repositories.journal import Entry
from shared.repositories.summaries import Checkpoint
from shared.repositories.tool_calls import StoredToolCall
from shared.repositories.turns import ClaimedTurn
from shared.snapshot import settled_events
from shared.turn_end import announce_end
from shared.turn_state import Inbox, InjectionState, ToolCallState, TurnStatus
from workers.runtime.lease import Lease

T = TypeVar("T")
L = TypeVar("L")


def join_injections(taken: list[StoredInjection]) -> str:
    """Return messages that arrived together as the text of one."""
    return "\n\n".join(item.content for item in taken)


class TurnRun:
    """One attempt at one turn."""

    def __init__(
        self,
        turn: ClaimedTurn,
        lease: Lease,
        writer: EventWriter,
        *,
        database: Database,
        doorbell: Doorbell,
        lease_s: float,
        approval_timeout_s: float,
    ) -> None:
        self.turn = turn
        self.lease = lease
        self._writer = writer
        self._database = database
        self._doorbell = doorbell
        self._lease_s = lease_s
        self._approval_timeout_s = approval_timeout_s
        self._began_at = time.monotonic()
        # Published with the next events.
        self._held_back: tuple[Event, ...] = ()

    async def emit(self, *events: Event) -> None:
        """Publish events. Never fails the turn."""
        held_back, self._held_back = self._held_back, ()
        await self._writer.emit(*held_back, *events)

    def hold_back(self, event: Event) -> None:
        """Publish an event along with the next one."""
        self._held_back += (event,)

    async def record_response(
        self,
        entries: Sequence[Entry],
        calls: Sequence[StoredToolCall] = (),
        *,
        phase: str | None = None,
    ) -> list[StoredToolCall]:
        """Journal a model's response together with the tool calls that it asks for.

        Calls that are not delegated are written as running, since they start as soon as this
        returns; when it raises for a cancel or a drain they are ready, and no tool has started.
        Returns the calls as they are on record but for that.
        Raises LeaseLostError, Cancelled or HandedOver.
        """
        fence = self.turn.fence

        def work(connection: Connection, inbox: Inbox) -> tuple[list[StoredToolCall], bool]:
            journal.append_entries(connection, fence, list(entries))
            written = tool_calls.insert_tool_calls(
                connection,
                fence,
                list(calls),
                approval_timeout_s=self._approval_timeout_s,
            )
            own = [call.id for call in written if not call.is_delegated]
            return written, self._start_calls(connection, inbox, own)

        given = {} if phase is None else {"phase": phase}
        written, has_started = await self._write(work, **given)
        self._check_after(has_started=has_started)
        return written

    async def ring_for(self, calls: Sequence[StoredToolCall]) -> None:
        """Send the tasks of calls that run as tasks of their own."""
        for call in calls:
            if call.is_delegated and call.state is ToolCallState.READY:
                turn = self.turn
                await self._doorbell.ring(
                    delegated_calls.task_of(call, turn.id, turn.conversation_id),
                )

    async def await_delegated(self) -> list[StoredToolCall]:
        """Return the turn's tool calls once none is delegated.

        Until then the turn is parked: raises Parked, and whoever settles the last one rings. A
        message that waits for the turn refuses what waits for approval.
        Raises LeaseLostError or Cancelled.
        """
        fence = self.turn.fence

        def work(
            connection: Connection,
            inbox: Inbox,
        ) -> tuple[Settled | None, TurnStatus | None, list[StoredToolCall]]:
            refused = None
            if inbox.pending_injections:
                refused = delegated_calls.refuse_open_calls(connection, fence.turn_id, USER_SPOKE)
            status = None
            if not inbox.is_cancel_requested:
                remaining_s = self.turn.remaining_s - (time.monotonic() - self._began_at)
                status = delegated_calls.park_turn(connection, fence, remaining_s=remaining_s)
            return refused, status, tool_calls.get_tool_calls(connection, fence.turn_id)

        refused, status, calls = await self._write(work)
        if refused is not None:
            await self.emit(*settled_events(refused.calls))
        if status is None:
            self.lease.check_stopped()
            return calls
        if status is TurnStatus.WAITING:
            await self.emit(Status(status=status, attempt=self.turn.attempt, reason="approval"))
        raise Parked

    async def record_compaction(
        self,
        entry: Entry,
        checkpoint: Checkpoint | None,
        *,
        history_version: int,
    ) -> None:
        """Journal a compaction, and write its checkpoint if it took messages of the history.

        history_version: of the history that was read; if a message of it was changed since, the
        checkpoint is not written.
        Raises LeaseLostError, Cancelled or HandedOver.
        """
        conversation_id = self.turn.conversation_id

        def lock(connection: Connection) -> int | None:
            return summaries.lock_history(connection, conversation_id) if checkpoint else None

        def work(connection: Connection, _inbox: Inbox, version: int | None) -> None:
            journal.append_entries(connection, self.turn.fence, [entry])
            if checkpoint is not None and version == history_version:
                summaries.insert_checkpoint(connection, conversation_id, checkpoint)

        await self._write_after(lock, work)
        self.lease.check()

    async def record_tools(self, names: Sequence[str], entry: Entry | None = None) -> None:
        """Add tools to those that were picked for the conversation.

        entry: journaled along with them.
        Raises LeaseLostError, Cancelled or HandedOver.
        """
        conversation_id = self.turn.conversation_id

        def lock(connection: Connection) -> None:
            summaries.lock_history(connection, conversation_id)

        def work(connection: Connection, _inbox: Inbox, _locked: None) -> None:
            journal.append_entries(connection, self.turn.fence, [entry] if entry else [])
            if names:
                conversations.add_tools(connection, conversation_id, names)

        await self._write_after(lock, work)
        self.lease.check()

    async def start_tool_calls(self, ids: Sequence[ToolCallId]) -> None:
        """Mark tool calls that an earlier attempt left as started by this one.

        Raises LeaseLostError, Cancelled or HandedOver.
        """
        has_started = await self._write(
            lambda connection, inbox: self._start_calls(connection, inbox, ids),
        )
        self._check_after(has_started=has_started)

    def _start_calls(
        self,
        connection: Connection,
        inbox: Inbox,
        ids: Sequence[ToolCallId],
    ) -> bool:
        """Mark tool calls as running, unless the turn is about to stop; tell whether they are."""
        if not ids or inbox.is_cancel_requested or self.lease.is_draining:
            return False
        tool_calls.start_tool_calls(connection, self.turn.fence, list(ids))
        return True

    def _check_after(self, *, has_started: bool) -> None:
        """Stop here if there is reason to; a drain that comes after the start waits."""
        if has_started:
            self.lease.check_stopped()
        else:
            self.lease.check()

    async def finish_tool_call(
        self,
        call_id: ToolCallId,
        *,
        state: ToolCallState,
        result: str,
        is_error: bool,
        elapsed_s: float,
    ) -> None:
        """Write down a tool call's result. Raises LeaseLostError."""

        def work(connection: Connection, _inbox: Inbox) -> None:
            tool_calls.finish_tool_call(
                connection,
                call_id,
                state=state,
                result=result,
                is_error=is_error,
                elapsed_s=elapsed_s,
            )

        await self._write(work)

    async def commit_injections(
        self,
        describe: Callable[[list[StoredInjection]], list[Entry]],
        entries: Sequence[Entry] = (),
    ) -> list[StoredInjection]:
        """Make the waiting messages part of the turn, as one message, and return them.

        describe: returns the journal's entries for them.
        entries: journaled before them, in the same transaction.
        Commits none if a cancel was requested. Raises LeaseLostError.
        """

        def work(connection: Connection, inbox: Inbox) -> list[StoredInjection]:
            # A turn that is about to be cancelled gives its messages back instead.
            is_over = inbox.is_cancel_requested
            taken = [] if is_over else injections.commit_injections(connection, self.turn.id)
            if taken:
                self._append_injection_message(connection, taken)
            described = describe(taken) if taken else []
            journal.append_entries(connection, self.turn.fence, [*entries, *described])
            return taken

        taken = await self._write(work, phase=None)
        if taken:
            self.lease.pending_injections = 0
        await self.emit(
            *(
                Inject(injection_id=item.id, state=InjectionState.COMMITTED, content=item.content)
                for item in taken
            ),
        )
        return taken

    async def complete(
        self,
        completion: Completion,
        entries: Sequence[Entry],
        before: tuple[Event, ...],
    ) -> bool:
        """End the turn with its answer; False if an injected message came first.

        entries: journaled in the same transaction, if it ends.
        before: events to publish ahead of the terminal one, if it ends.
        Raises LeaseLostError, or Cancelled if a cancel came first.
        """

        def work(connection: Connection) -> EndedTurn | None:
            ended = endings.complete_turn(connection, self.turn.fence, completion)
            if ended is not None:
                journal.append_entries(connection, self.turn.fence, list(entries))
            return ended

        ended = await self._database.write(work)
        if ended is not None:
            await self._announce(ended, before)
            return True
        await self._write(lambda _connection, _inbox: None)  # why not: this reads the inbox
        self.lease.check()
        return False

    async def park(self, delay_s: float) -> None:
        """Let go of the turn for a while. Does nothing if the lease is lost."""
        await self._database.write(
            lambda connection: leases.park_turn(connection, self.turn.fence, delay_s),
        )

    async def fail(self, failure: Failure) -> None:
        """End the turn as failed. Does nothing if the lease is lost."""
        ended = await self._database.write(
            lambda connection: endings.fail_turn(connection, self.turn.fence, failure),
        )
        if ended is not None:
            await self._announce(ended)

    async def cancel(self, *, partial_answer: str, usage: dict[str, object]) -> None:
        """End the turn as cancelled. Does nothing if the lease is lost."""
        ended = await self._database.write(
            lambda connection: endings.cancel_turn(
                connection,
                self.turn.fence,
                partial_answer=partial_answer,
                usage=usage,
            ),
        )
        if ended is not None:
            await self._announce(ended)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Read from the store."""
        return await self._database.read(work)

    async def _write(self, work: Callable[[Connection, Inbox], T], **values: object) -> T:
        def fenced(connection: Connection, inbox: Inbox, _locked: None) -> T:
            return work(connection, inbox)

        return await self._write_after(lambda _connection: None, fenced, **values)

    async def _write_after(
        self,
        lock: Callable[[Connection], L],
        work: Callable[[Connection, Inbox, L], T],
        **values: object,
    ) -> T:
        """Write behind the fence; lock takes what has to be locked before the turn's row."""

        def transaction(connection: Connection) -> tuple[T, Inbox] | None:
            locked = lock(connection)
            inbox = turns.fence_write(
                connection,
                self.turn.fence,
                lease_s=self._lease_s,
                **values,
            )
            return None if inbox is None else (work(connection, inbox, locked), inbox)

        sent_at = time.monotonic()
        done = await self._database.write(transaction)
        if done is None:
            lost = LeaseLostError()
            self.lease.stop(lost)
            raise lost
        result, inbox = done
        self.lease.note(inbox, renewed_at=sent_at)
        return result

    def _append_injection_message(
        self,
        connection: Connection,
        taken: list[StoredInjection],
    ) -> None:
        messages.append_message(
            connection,
            turn_id=self.turn.id,
            conversation_id=self.turn.conversation_id,
            role="user",
            kind="injection",
            content=join_injections(taken),
        )

    async def _announce(self, ended: EndedTurn, before: tuple[Event, ...] = ()) -> None:
        await announce_end(
            ended,
            writer=self,
            doorbell=self._doorbell,
            before=before,
        )
