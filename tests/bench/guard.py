"""What the ContextGuard costs a request that fits as it is."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, islice

from tests.bench.estimator import best_of
from tests.bench.measured import Measured
from tests.helpers.data import load_multilingual_chats, load_tool_trajectories
from workers.context.calibration import CAUTIOUS, Factors, Sample
from workers.context.guard import ContextGuard
from workers.context.messages import Message
from workers.context.meter import TokenMeter
from workers.model.values import ModelRequest, ModelTarget

MESSAGES = 500
MAX_MS = 1.0
TARGET = ModelTarget(
    name="wide",
    base_url="http://provider",
    api_key="none",
    context_size=1_000_000,
    max_output_tokens=10_000,
)


class UnknownModel:
    """Knows nothing of any model and learns nothing."""

    def factors(self, _target: ModelTarget) -> Factors:
        """Return what holds of a model that nothing is known of."""
        return CAUTIOUS

    def learn(self, _target: ModelTarget, _sample: Sample) -> None:
        """Forget it."""


def measure_guard() -> Iterator[Measured]:
    """Yield a guard's first pass over real messages, and any further one.

    In a turn, the load has measured the history before the guard's first pass, and each message
    is measured once.
    """
    request = ModelRequest(target=TARGET, messages=_messages())
    guard = _fresh_guard()
    first_ms = 1e3 * best_of(50, lambda: _pass(_fresh_guard(), request))
    further_ms = 1e3 * best_of(50, lambda: _pass(guard, request))
    what = f"guard, {MESSAGES} messages within the budget"
    characters = sum(len(message.text) for message in request.messages)
    yield Measured(f"{what}, {characters:,} characters never measured: {first_ms:.2f} ms")
    yield Measured(
        f"{what}, measured before: {further_ms:.2f} ms (at most {MAX_MS:g} ms)",
        holds=further_ms <= MAX_MS,
    )


def _fresh_guard() -> ContextGuard:
    return ContextGuard(TokenMeter(UnknownModel()), None)


def _pass(guard: ContextGuard, request: ModelRequest) -> None:
    # Nothing in it waits, so one step of the coroutine is all there is.
    fitting = guard.fit(request, hint="react_iteration")
    try:
        fitting.send(None)
    except StopIteration as done:
        if done.value.compactions:
            raise ValueError("the request is over the budget") from None
    else:
        fitting.close()
        raise RuntimeError("the guard waits for something")


def _messages() -> tuple[Message, ...]:
    chats = [*load_tool_trajectories(), *load_multilingual_chats()]
    said = [message for chat in chats for message in chat.messages if message.role != "system"]
    # Each an object of its own, as messages that were loaded are.
    return tuple(replace(message) for message in islice(cycle(said), MESSAGES))
