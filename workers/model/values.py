"""What goes into a model call and what comes out of it, as immutable values."""

from dataclasses import dataclass, field
from typing import Literal

from workers.context.messages import Message, ToolCall
from workers.model.limits import NO_LIMITS, NO_TICKET, Limits, Ticket

# What a call is for; usage is counted by it.
Purpose = Literal["loop", "synthesis", "compaction", "selection", "routing", "plan", "analysis"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a model's provider understands; what it does not is asked for in another way."""

    # Tools offered and called natively; else in JSON mode.
    tool_call: bool = True
    # `response_format` of type json_object.
    json_mode: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTarget:
    """A model at a provider, with the limits of its window. Tokens are the provider's."""

    name: str
    base_url: str
    api_key: str = field(repr=False)
    context_size: int
    max_output_tokens: int
    abilities: Abilities = Abilities()
    limits: Limits = NO_LIMITS
    # Called in its place while it cannot be; has none itself.
    fallback: "ModelTarget | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSchema:
    """A tool as the model is told of it; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, object]

    def to_wire(self) -> dict[str, object]:
        """Return the tool as the chat-completions protocol spells it."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One call: the messages in order, the tools offered, and what the call is for."""

    target: ModelTarget
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    # Name of the tool that has to be called; None leaves it to the model.
    tool_choice: str | None = None
    # Most tokens the answer may have; None leaves it to the provider.
    max_tokens: int | None = None
    # Kind of JSON the answer has to be; None: any text.
    response_format: Literal["json_object"] | None = None
    purpose: Purpose = "loop"
    # Where it stands in the line for the model.
    ticket: Ticket = NO_TICKET


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call as the provider counted them, or as we estimated when it did not say."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    is_estimated: bool = False

    def __add__(self, other: "Usage") -> "Usage":
        """Return the tokens of both; estimated if one of them is."""
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            is_estimated=self.is_estimated or other.is_estimated,
        )


NO_USAGE = Usage(input_tokens=0, output_tokens=0)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """The answer holds a tool call; sent once, when the first piece of the first call arrives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResponse:
    """The complete answer of one call."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    # stop, length, tool_calls, content_filter: as the provider said
    finish_reason: str
    usage: Usage
    # Thoughts of the model, never part of the answer.
    reasoning: str = ""
    # In JSON mode: the text is not the action that was asked for.
    is_malformed: bool = False


ModelEvent = TextDelta | ToolCallDelta | ModelResponse
