"""Names of tasks and queues, and the payloads that their messages carry: ids, never state."""

from dataclasses import dataclass
from typing import ClassVar

from shared.ids import ConversationId, ToolCallId, TurnId

TURNS_QUEUE = "turns"
TOOLS_QUEUE = "tools"
TURN_REACT = "turnmill.turn.react"
TOOL_RUN = "turnmill.tool.run"

QUEUES = {TURN_REACT: TURNS_QUEUE, TOOL_RUN: TOOLS_QUEUE}
# Above a tool's own timeout, which ends a call tidily.
HARD_LIMIT_SPARE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTask:
    """A doorbell for a turn. Attempt is what it was when rung, for people who watch."""

    name: ClassVar[str] = TURN_REACT
    # Threads cannot be stopped from outside.
    time_limit_s: ClassVar[float | None] = None

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTask:
    """A doorbell for a tool call that runs as a task of its own."""

    name: ClassVar[str] = TOOL_RUN

    tool_call_id: ToolCallId
    turn_id: TurnId
    conversation_id: ConversationId
    # For people who watch.
    tool_name: str
    # Time the call may take.
    timeout_s: float

    @property
    def time_limit_s(self) -> float:
        """Seconds after which the process that runs the task is killed."""
        return self.timeout_s + HARD_LIMIT_SPARE_S

    def to_kwargs(self) -> dict[str, object]:
        """Return the message's keyword arguments."""
        return {
            "tool_call_id": self.tool_call_id,
            "turn_id": self.turn_id,
            "conversation_id": self.conversation_id,
            "tool_name": self.tool_name,
            "timeout_s": self.timeout_s,
        }

    def describe(self) -> str:
        """Return the arguments as Flower shows them."""
        return (
            f"tool={self.tool_name}, call={self.tool_call_id}, turn={self.turn_id},"
            f" conversation={self.conversation_id}"
        )


# What a worker can be rung for.
Task = TurnTask | ToolTask
