"""The token meter: measures requests with what their providers reported of earlier ones.

A request that extends the last one is that one's reported size and the growth; any other is
counted whole, with the model's factors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from workers.context.calibration import Factors, Sample
from workers.context.counter import CalibratedCounter, ShapeMemo, TokenCounter, tool_shape
from workers.context.messages import Message
from workers.context.shape import Shape
from workers.model.values import ModelRequest, ModelTarget, Purpose, ToolSchema, Usage


class Calibration(Protocol):
    """What is known of models, kept beyond one turn."""

    def factors(self, target: ModelTarget) -> Factors:
        """Return the factors of a model."""

    def learn(self, target: ModelTarget, sample: Sample) -> None:
        """Take in what a provider reported."""


@dataclass(frozen=True, slots=True)
class _Anchor:
    tools: tuple[ToolSchema, ...]
    messages: tuple[Message, ...]
    # As the provider reported it.
    tokens: int


class TokenMeter:
    """Measures the requests of one turn."""

    def __init__(self, calibration: Calibration) -> None:
        self._calibration = calibration
        self._shapes = ShapeMemo()
        self._anchors: dict[tuple[ModelTarget, Purpose], _Anchor] = {}

    def counter(self, target: ModelTarget) -> TokenCounter:
        """Return the counter for a model, as it is known now."""
        return CalibratedCounter(self._calibration.factors(target), self._shapes)

    def measure(self, request: ModelRequest) -> int:
        """Return the tokens of a request."""
        factors = self._calibration.factors(request.target)
        anchor = self._anchors.get((request.target, request.purpose))
        if anchor is None or not _extends(request, anchor):
            return factors.tokens(self._shape(request.messages, request.tools))
        growth = request.messages[len(anchor.messages) :]
        return anchor.tokens + factors.tokens(self._shape(growth))

    def observe(self, request: ModelRequest, usage: Usage) -> None:
        """Learn from what the provider reported of a request, if it did."""
        if usage.is_estimated:
            return
        anchor = _Anchor(request.tools, request.messages, usage.input_tokens)
        self._anchors[request.target, request.purpose] = anchor
        self.learn_size(request, usage.input_tokens)

    def learn_size(self, request: ModelRequest, tokens: int) -> None:
        """Learn that a request has so many tokens. What images cost is not learned."""
        shape = self._shape(request.messages, request.tools)
        if not shape.fixed:
            self._calibration.learn(
                request.target, Sample(shape.ascii, shape.other, shape.tools, tokens)
            )

    def _shape(self, messages: Sequence[Message], tools: tuple[ToolSchema, ...] = ()) -> Shape:
        ascii_, other, fixed = 0.0, 0.0, 0.0
        for message in messages:
            shape = self._shapes.of(message)
            ascii_, other, fixed = ascii_ + shape.ascii, other + shape.other, fixed + shape.fixed
        return sum(map(tool_shape, tools), start=Shape(ascii_, other, fixed=fixed))


def _extends(request: ModelRequest, anchor: _Anchor) -> bool:
    start = request.messages[: len(anchor.messages)]
    return request.tools == anchor.tools and start == anchor.messages
