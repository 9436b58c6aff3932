"""The one fitting step before the wire: whatever is sent to a model has passed it.

Within the budget a request keeps its very messages. Over it, the oldest rounds are left out;
what is cut inside of a message says so, and the compaction tells of all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shared.errors import ContextLengthError
from workers.context.budget import Budget
from workers.context.compaction import Compaction
from workers.context.cuts import MAX_CHARS, cap_message, shrink, text_length
from workers.context.estimate import estimate_message, estimate_messages, estimate_tools
from workers.context.messages import Message
from workers.context.pins import pinned_messages, unpin_oldest
from workers.context.rounds import split_units
from workers.context.truncate import is_protected, smart_truncate
from workers.model.values import ModelRequest

# Room the messages get where instructions and tools fill the budget, at the answer's expense.
MIN_ROOM_TOKENS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A request that fits."""

    # With max_tokens set.
    request: ModelRequest
    # None: the messages are those that were given.
    compaction: Compaction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """Tokens that the parts of a request may hold."""

    # The request without its tool schemas.
    messages: int
    # The messages without the system messages.
    room: int
    # The pinned messages, before injected ones lose their pin.
    pinned: int


class ContextGuard:
    """Makes requests fit their model's window."""

    def fit(self, request: ModelRequest, *, hint: str) -> Fitted:
        """Return the request, made to fit if it does not.

        hint: what the messages are for; named by the compaction.
        The given request is not changed. System and pinned messages stay; a message over
        MAX_CHARS is cut at its end, pinned messages that are over the budget by themselves and
        tool results that would not be seen at all are cut in the middle.
        Raises ContextLengthError if what has to stay exceeds the window.
        """
        budget = Budget.of(request.target)
        tool_tokens = estimate_tools(request.tools)
        reasons: list[str] = []
        messages = _cap(request.messages, reasons)
        tokens = tool_tokens + estimate_messages(messages)
        if tokens > budget.usable:
            reasons.append(
                f"the request of about {tokens} tokens is over the budget of {budget.usable}",
            )
            messages = _compact(messages, _limits(messages, budget, tool_tokens), reasons)
            tokens = tool_tokens + estimate_messages(messages)
            _check(request, messages, tool_tokens)
        max_tokens = budget.max_tokens_for(tokens)
        if request.max_tokens is not None:
            max_tokens = min(max_tokens, request.max_tokens)
        if messages == request.messages:
            return Fitted(request=replace(request, max_tokens=max_tokens), compaction=None)
        return Fitted(
            request=replace(request, messages=messages, max_tokens=max_tokens),
            compaction=_describe(request, messages, hint, tool_tokens, "; ".join(reasons)),
        )


def _describe(
    request: ModelRequest,
    messages: Sequence[Message],
    hint: str,
    tool_tokens: int,
    reason: str,
) -> Compaction:
    pins_before, pins_after = pinned_messages(request.messages), pinned_messages(messages)
    return Compaction(
        layer="guard",
        hint=hint,
        purpose=request.purpose,
        original_messages=len(request.messages),
        kept_messages=len(messages),
        tokens_before=tool_tokens + estimate_messages(request.messages),
        tokens_after=tool_tokens + estimate_messages(messages),
        unpinned=len(pins_before) - len(pins_after),
        reason=reason,
    )


def _cap(messages: tuple[Message, ...], reasons: list[str]) -> tuple[Message, ...]:
    long = sum(text_length(message) > MAX_CHARS for message in messages)
    if not long:
        return messages
    reasons.append(f"{long} of the messages had more than {MAX_CHARS} characters and were cut")
    return tuple(map(cap_message, messages))


def _limits(messages: Sequence[Message], budget: Budget, tool_tokens: int) -> _Limits:
    system_tokens = estimate_messages(item for item in messages if item.role == "system")
    fixed_tokens = system_tokens + tool_tokens
    least_room = min(MIN_ROOM_TOKENS, (budget.context_size - fixed_tokens) // 2)
    room = max(budget.usable - fixed_tokens, least_room)
    return _Limits(
        messages=system_tokens + room,
        room=room,
        pinned=min(budget.usable // 2, room),
    )


def _compact(
    messages: tuple[Message, ...],
    limits: _Limits,
    reasons: list[str],
) -> tuple[Message, ...]:
    messages = unpin_oldest(messages, limits.pinned)
    messages = _shrink_pinned(messages, limits.room, reasons)
    messages = _shrink_newest_round(messages, limits.room, reasons)
    return smart_truncate(messages, limits.messages)


def _shrink_pinned(
    messages: tuple[Message, ...],
    room: int,
    reasons: list[str],
) -> tuple[Message, ...]:
    """Cut pinned messages that are over the budget by themselves; half is left for the work."""
    pinned = pinned_messages(messages)
    if estimate_messages(pinned) <= room:
        return messages
    reasons.append("what must stay is over it by itself and was cut to its beginning and end")
    shrunk = iter(shrink(pinned, room // 2))
    pinned_ids = {id(message) for message in pinned}
    return tuple(next(shrunk) if id(item) in pinned_ids else item for item in messages)


def _shrink_newest_round(
    messages: tuple[Message, ...],
    room: int,
    reasons: list[str],
) -> tuple[Message, ...]:
    """Cut the results of the last round if it would not fit.

    Left out as a whole, it would be asked for again and again.
    """
    units = split_units(messages)
    newest = next(
        (index for index in reversed(range(len(units))) if not is_protected(units[index])),
        None,
    )
    if newest is None:
        return messages
    asked, *results = units[newest]
    left = room - estimate_messages(pinned_messages(messages))
    if not results or estimate_messages(units[newest]) <= left:
        return messages
    shrunk = shrink(results, left - estimate_message(asked))
    units[newest] = (asked, *shrunk)
    if estimate_messages(units[newest]) > left:
        return messages
    reasons.append("the newest tool results were cut in the middle")
    return tuple(message for unit in units for message in unit)


def _check(request: ModelRequest, messages: Sequence[Message], tool_tokens: int) -> None:
    """Raise ContextLengthError if the window is full before any answer."""
    size = request.target.context_size
    tokens = estimate_messages(messages)
    if tool_tokens + tokens < size:
        return
    system = estimate_messages(message for message in messages if message.role == "system")
    raise ContextLengthError(
        f"The request does not fit the window of {request.target.name}, {size} tokens: the"
        f" instructions take about {system}, the schemas of {len(request.tools)} tools"
        f" {tool_tokens}, and the messages that must stay {tokens - system}. Shorten the"
        " instructions, offer fewer tools, or use a model with a larger window",
    )
