"""The states of a turn and of what belongs to it."""

from dataclasses import dataclass
from enum import StrEnum

from shared.ids import TurnId


class TurnStatus(StrEnum):
    """Where a turn stands."""

    # Accepted; its input lives on the turn, no message exists yet.
    QUEUED = "queued"
    # Claimed at least once and not ended.
    RUNNING = "running"
    # Stands still until a person decides; holds no lease.
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN_STATUSES = (TurnStatus.QUEUED, TurnStatus.RUNNING, TurnStatus.WAITING)
ACTIVE_STATUSES = (TurnStatus.RUNNING, TurnStatus.WAITING)


class TurnMode(StrEnum):
    """How a turn is worked on."""

    REACT = "react"


class IfBusy(StrEnum):
    """What becomes of a turn posted to a conversation that has an open one."""

    QUEUE = "queue"
    REJECT = "reject"


class InjectionState(StrEnum):
    """Where an injected message stands; moves forward only."""

    ACCEPTED = "accepted"
    # Part of the conversation.
    COMMITTED = "committed"
    # The turn ended without it.
    RETURNED = "returned"


class ToolCallState(StrEnum):
    """Where a tool call stands."""

    # A person has to approve it first.
    WAITING_APPROVAL = "waiting_approval"
    # Asked for, never started.
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    # Started by a worker that was lost; whether it took effect is not known.
    UNKNOWN = "unknown"


FINISHED_STATES = (ToolCallState.DONE, ToolCallState.UNKNOWN)


class StepState(StrEnum):
    """Where a step of a plan stands."""

    # Its dependencies have not ended, or too many other steps run.
    PENDING = "pending"
    READY = "ready"
    RUNNING = "running"
    # Stands still until a person decides.
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    # Never run: a dependency has no result, or the plan was given up.
    SKIPPED = "skipped"


OPEN_STEPS = (StepState.PENDING, StepState.READY, StepState.RUNNING, StepState.WAITING)
# Those that count against the cap.
STARTED_STEPS = (StepState.READY, StepState.RUNNING, StepState.WAITING)


class ApprovalState(StrEnum):
    """What was decided about a tool call that a person has to approve."""

    WAITING = "waiting"
    APPROVED = "approved"
    REFUSED = "refused"
    # Nobody decided in time, or the turn ended first.
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to write for a turn: its id and the attempt that holds the lease."""

    turn_id: TurnId
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFence:
    """The right to write for a step: its key and the attempt that holds the lease."""

    turn_id: TurnId
    round: int
    step_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbox:
    """What waits for a turn, as every fenced write reads it."""

    pending_injections: int
    is_cancel_requested: bool
