"""Every type of event, once. An event is a numbered fact about a turn, published for readers.

Events set state: applying one twice changes nothing. Optional fields are left out when None.
"""

from dataclasses import dataclass, fields
from typing import ClassVar, Literal

import orjson

from shared.ids import TurnId

# Most characters of a tool's result that an event carries; the whole is what the model sees.
OBSERVATION_CHARS = 4_000
# Most characters of a tool's arguments that an event carries; longer ones become text and are cut.
ARGUMENTS_CHARS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events."""

    name: ClassVar[str]
    # Whether the stream ends with it.
    is_terminal: ClassVar[bool] = False

    def data(self) -> dict[str, object]:
        """Return the event's fields, without those that are None."""
        pairs = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in pairs if value is not None}

    def encode(self, turn_id: TurnId) -> str:
        """Return the event's data as one line of JSON."""
        return orjson.dumps({"turn_id": turn_id} | self.data()).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(Event):
    """The turn's status changed."""

    name = "status"
    status: str
    attempt: int
    reason: str | None = None
    # Open turns of the conversation that come first.
    queue_position: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Event):
    """All that is known of the turn; whatever a reader folded before is replaced by it."""

    name = "snapshot"
    status: str
    mode: str
    attempt: int
    answer_so_far: str
    # Tool calls as `step` events of type iteration show them.
    steps: list[dict[str, object]]
    injections: list[dict[str, object]]
    compactions: list[dict[str, object]]
    # As `approval` events show them.
    approvals: list[dict[str, object]]
    phase: str | None = None
    usage: dict[str, object] | None = None
    error: dict[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase(Event):
    """The turn entered a phase."""

    name = "phase"
    phase: Literal["selecting_tools", "synthesizing", "falling_back"]
    reason: str | None = None
    # Of falling_back: the model that is called from then on.
    model: str | None = None
    # Of selecting_tools: how many there are to choose from.
    total_tools: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Event):
    """What the ReAct loop does: a model call, a tool call, or the answer that ends it."""

    name = "step"
    type: Literal["thinking", "iteration", "answer"]
    status: Literal["start", "done"]
    # The model call, counted from 1.
    iteration: int
    tool_call_id: str | None = None
    tool_name: str | None = None
    # The arguments as JSON; what is no JSON, or over ARGUMENTS_CHARS long, as text.
    tool_args: object = None
    # The tool's result, cut to OBSERVATION_CHARS.
    observation: str | None = None
    # The sentence of a tool call that failed.
    error: str | None = None
    reasoning: str | None = None
    elapsed_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval(Event):
    """A tool call that a person has to approve changed its state."""

    name = "approval"
    tool_call_id: str
    tool_name: str
    # As `Step` has them.
    args: object
    state: str
    reason: str | None = None
    # While it waits: until when, in ISO 8601.
    expires_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact(Event):
    """Messages were summarized, left out or cut, so that a request fits. Tokens are measured."""

    name = "compact"
    layer: str
    hint: str
    purpose: str
    original_messages: int
    kept_messages: int
    tokens_before: int
    tokens_after: int
    method: Literal["llm", "truncate"]
    # Position of the newest message of the conversation that is not in its own words any more.
    summarized_until: int | None = None
    # Injected messages that lost their pin.
    unpinned: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inject(Event):
    """An injected message changed its state."""

    name = "inject"
    injection_id: str
    state: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Event):
    """The answer as it is written. A delta sets the text from `offset` on.

    offset: characters of the answer before this piece, counted since the last restart.
    """

    name = "answer"
    status: Literal["start", "delta", "restart", "done"]
    content: str | None = None
    offset: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Event):
    """The turn was answered."""

    name = "done"
    is_terminal = True
    answer: str
    iterations: int
    usage: dict[str, object]
    elapsed_s: float
    compacted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Event):
    """The turn failed. error: `{type, message}`."""

    name = "failed"
    is_terminal = True
    error: dict[str, object]
    usage: dict[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled(Event):
    """The turn was cancelled."""

    name = "cancelled"
    is_terminal = True
    by: str | None = None
    reason: str | None = None
    usage: dict[str, object] | None = None


TERMINAL_NAMES = frozenset(kind.name for kind in (Done, Failed, Cancelled))
