"""How the parts of a request are counted, in tokens: by the plain estimate, or calibrated."""

from abc import ABC, abstractmethod
from collections.abc import Iterable

from workers.context.calibration import Factors
from workers.context.estimate import (
    IMAGE_TOKENS,
    MESSAGE_TOKENS,
    estimate_message,
    estimate_tokens,
    estimate_tools,
    tool_text,
)
from workers.context.messages import Message, TextPart
from workers.context.shape import Shape, shape_of
from workers.model.values import ModelRequest, ToolSchema


class TokenCounter(ABC):
    """Counts tokens. What is larger never counts less."""

    @abstractmethod
    def text(self, text: str) -> int:
        """Return the tokens of a text; 0 only if it is empty."""

    @abstractmethod
    def message(self, message: Message) -> int:
        """Return the tokens of a message, its tool calls included."""

    @abstractmethod
    def tools(self, schemas: Iterable[ToolSchema]) -> int:
        """Return the tokens of tool schemas."""

    def messages(self, messages: Iterable[Message]) -> int:
        """Return the tokens of messages together."""
        return sum(map(self.message, messages))

    def request(self, request: ModelRequest) -> int:
        """Return the tokens of a request's messages and tool schemas."""
        return self.messages(request.messages) + self.tools(request.tools)


class EstimateCounter(TokenCounter):
    """The plain estimate, for callers that know no model."""

    def text(self, text: str) -> int:
        """See `estimate_tokens`."""
        return estimate_tokens(text)

    def message(self, message: Message) -> int:
        """See `estimate_message`."""
        return estimate_message(message)

    def tools(self, schemas: Iterable[ToolSchema]) -> int:
        """See `estimate_tools`."""
        return estimate_tools(schemas)


ESTIMATE = EstimateCounter()


class CalibratedCounter(TokenCounter):
    """Counts for one model, with what was learned of its tokenizer."""

    def __init__(self, factors: Factors, shapes: "ShapeMemo") -> None:
        self._factors = factors
        self._shapes = shapes

    def text(self, text: str) -> int:
        """Return the tokens of a text; 0 only if it is empty."""
        return self._factors.tokens(shape_of(text))

    def message(self, message: Message) -> int:
        """Return the tokens of a message, its tool calls included."""
        return self._factors.tokens(self._shapes.of(message))

    def tools(self, schemas: Iterable[ToolSchema]) -> int:
        """Return the tokens of tool schemas."""
        return sum(self._factors.tokens(tool_shape(schema)) for schema in schemas)


class ShapeMemo:
    """Shapes of messages, each measured once. Messages are kept as long as the memo is."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Message, Shape]] = {}

    def of(self, message: Message) -> Shape:
        """Return the shape of a message."""
        known = self._known.get(id(message))
        if known is None:
            known = self._known[id(message)] = (message, message_shape(message))
        return known[1]


def message_shape(message: Message) -> Shape:
    """Return the shape of a message, its tool calls included."""
    content = message.content
    images = 0
    if content is not None and not isinstance(content, str):
        images = sum(not isinstance(part, TextPart) for part in content)
    calls = "".join(call.name + call.arguments for call in message.tool_calls)
    shape = shape_of(message.text + calls)
    return Shape(shape.ascii + MESSAGE_TOKENS, shape.other, fixed=IMAGE_TOKENS * images)


def tool_shape(schema: ToolSchema) -> Shape:
    """Return the shape of a tool schema; its text in other scripts weighs what any does."""
    shape = shape_of(tool_text(schema))
    return Shape(other=shape.other, tools=shape.ascii)
