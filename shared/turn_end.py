"""What follows a commit that moved a turn: events for its readers, bells for what goes on."""

from typing import Protocol

from shared.broker import Doorbell
from shared.events import Event, Inject
from shared.repositories.delegated_calls import Settled
from shared.repositories.endings import EndedTurn
from shared.snapshot import settled_events, terminal_event
from shared.task_names import TurnTask
from shared.turn_state import InjectionState


class Writer(Protocol):
    """Appends events of one turn."""

    async def emit(self, *events: Event) -> None:
        """Append events in order."""


async def announce_end(
    ended: EndedTurn,
    *,
    writer: Writer,
    doorbell: Doorbell,
    before: tuple[Event, ...] = (),
) -> None:
    """Publish the turn's last events and ring the conversation's next turn.

    before: events that belong before the terminal one. May be repeated; skipping it loses
    nothing, since readers are given the end from the database and the sweep rings.
    """
    last = terminal_event(ended.turn)
    returned = [
        Inject(
            injection_id=item.injection_id,
            state=InjectionState.RETURNED,
            content=item.content,
        )
        for item in ended.returned
    ]
    if last is not None:
        closed = settled_events(ended.closed_calls)
        await writer.emit(*before, *closed, *returned, last)
    if ended.next_turn_id is not None:
        await doorbell.ring(
            TurnTask(turn_id=ended.next_turn_id, conversation_id=ended.turn.conversation_id),
        )


async def announce_settled(settled: Settled, *, writer: Writer, doorbell: Doorbell) -> None:
    """Publish what became of delegated tool calls, and ring whoever can go on.

    May be repeated or skipped, as above.
    """
    if settled.calls:
        await writer.emit(*settled_events(settled.calls))
    for task in settled.tasks:
        await doorbell.ring(task)
