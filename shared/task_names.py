"""Names of tasks and queues, and the payload that their messages carry: ids, never state."""

from dataclasses import dataclass

from shared.ids import ConversationId, TurnId

TURNS_QUEUE = "turns"
TURN_REACT = "turnmill.turn.react"

QUEUES = {TURN_REACT: TURNS_QUEUE}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTask:
    """A doorbell for a turn. Attempt is what it was when rung, for people who watch."""

    turn_id: TurnId
    conversation_id: ConversationId
    attempt: int = 0

    def to_kwargs(self) -> dict[str, object]:
        """Return the message's keyword arguments."""
        return {
            "turn_id": self.turn_id,
            "conversation_id": self.conversation_id,
            "attempt": self.attempt,
        }

    def describe(self) -> str:
        """Return the arguments as Flower shows them."""
        return f"turn={self.turn_id}, conversation={self.conversation_id}, attempt={self.attempt}"
