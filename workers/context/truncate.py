"""Truncation by whole units: what must stay stays, of the rest the newest that fit."""

from collections.abc import Callable, Sequence

from workers.context.counter import ESTIMATE, TokenCounter
from workers.context.messages import Message
from workers.context.rounds import Unit, split_units


def smart_truncate(
    messages: Sequence[Message],
    budget_tokens: int,
    counter: TokenCounter = ESTIMATE,
) -> tuple[Message, ...]:
    """Leave out the oldest messages until the rest fits.

    messages: oldest first; not changed.
    budget_tokens: size wanted, as the counter counts.
    Returns what `keep_newest` does.
    """
    return keep_newest(messages, budget_tokens, counter.messages)


def keep_newest(
    messages: Sequence[Message],
    room: int,
    size: Callable[[Unit], int],
) -> tuple[Message, ...]:
    """Keep what must stay, and of the rest the newest that fit.

    messages: oldest first; not changed.
    room: most that the messages may have together, as size measures them.
    Returns the system messages, the pinned ones (with the round they are in) and, of the other
    units, the longest run of newest ones that fits besides those, all in their old order. Only
    if those that must stay are too large by themselves, the result is too. It never begins with
    an assistant or tool message, system messages aside, unless that one is pinned.
    """
    units = split_units(messages)
    left = room - sum(size(unit) for unit in units if is_protected(unit))
    kept: list[Unit] = []
    is_full = False
    for unit in reversed(units):
        if is_protected(unit):
            kept.append(unit)
            continue
        left -= size(unit)
        # Once a unit is left out, older ones are too: a gap would tear the talk apart.
        is_full = is_full or left < 0
        if not is_full:
            kept.append(unit)
    return tuple(message for unit in _from_user(kept[::-1]) for message in unit)


def is_protected(unit: Unit) -> bool:
    """Whether truncation keeps the unit whatever its size."""
    return any(message.pinned or message.role == "system" for message in unit)


def _from_user(units: list[Unit]) -> list[Unit]:
    """Leave out unprotected units before the first user message or pinned unit."""
    start = next(
        (
            index
            for index, unit in enumerate(units)
            if unit[0].role == "user" or any(message.pinned for message in unit)
        ),
        len(units),
    )
    return [unit for unit in units[:start] if is_protected(unit)] + units[start:]
