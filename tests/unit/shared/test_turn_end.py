"""What follows an end: readers are told before the next turn can begin."""

from datetime import timedelta
from typing import cast

from shared.broker import Doorbell
from shared.events import Event
from shared.ids import InjectionId, TurnId, new_conversation_id, new_turn_id
from shared.repositories.endings import EndedTurn
from shared.repositories.injections import ReturnedInjection
from shared.repositories.turns import TurnView
from shared.task_names import TurnTask
from shared.turn_end import announce_end
from shared.turn_state import TurnMode, TurnStatus
from tests.helpers.moments import SOME_TIME


class Told:
    """Notes events and doorbells in the order they come."""

    def __init__(self) -> None:
        self.said: list[str] = []

    async def emit(self, *events: Event) -> None:
        """Note events."""
        self.said += [event.name for event in events]

    async def ring(self, task: TurnTask) -> None:
        """Note a doorbell."""
        self.said.append(f"ring {task.turn_id}")


def cancelled_turn() -> TurnView:
    return TurnView(
        id=new_turn_id(),
        conversation_id=new_conversation_id(),
        number=1,
        status=TurnStatus.CANCELLED,
        phase=None,
        mode=TurnMode.REACT,
        first_position=1,
        attempt=1,
        stream_epoch=1,
        answer=None,
        usage=None,
        iterations=None,
        compacted=False,
        error=None,
        cancel_by="api",
        cancel_reason=None,
        attachments=(),
        metadata={},
        created_at=SOME_TIME,
        started_at=SOME_TIME,
        finished_at=SOME_TIME + timedelta(seconds=1),
        idempotency_hash=None,
    )


async def test_readers_are_told_of_the_end_before_the_next_turn_is_rung() -> None:
    told = Told()
    ended = EndedTurn(
        turn=cancelled_turn(),
        returned=(ReturnedInjection(injection_id=InjectionId("inj_1"), content="more"),),
        next_turn_id=TurnId("turn_2"),
    )

    await announce_end(ended, writer=told, doorbell=cast("Doorbell", told))

    assert told.said == ["inject", "cancelled", "ring turn_2"]
