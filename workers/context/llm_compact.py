"""Compaction of a list of messages: the older ones become one summary, or are left out.

Whole rounds only, in their old order; system and pinned messages stay. What the model makes of
the older messages is used only if it is a summary and shorter than they are: in every other
case the newest that fit are kept, and an earlier summary with them.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from shared.errors import TurnmillError
from workers.context.counter import ESTIMATE, TokenCounter
from workers.context.hints import Hint
from workers.context.messages import Message
from workers.context.rounds import Unit, split_units
from workers.context.summary import is_summary, summary_message, summary_text
from workers.context.truncate import is_protected, smart_truncate

# Newest compactable messages that are never summarised, if they fit.
KEEP_NEWEST = 4


class SummaryRefusedError(TurnmillError):
    """There is no usable summary. The message says why, as part of a sentence."""

    code = "summary_refused"


class Summarize(Protocol):
    """Writes the summary of messages."""

    def __call__(
        self,
        messages: Sequence[Message],
        *,
        hint: Hint,
        room_tokens: int,
    ) -> Awaitable[str]:
        """Return the summary. Raises SummaryRefusedError if there is none to use.

        messages: oldest first; an earlier summary comes first.
        room_tokens: size the summary should not exceed.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """A list of messages after its compaction."""

    messages: tuple[Message, ...]
    # Indexes of the given messages that are gone, ascending; empty if nothing had to be done.
    replaced: tuple[int, ...] = ()
    # What stands for them, an earlier summary included; "" if they were just left out.
    summary: str = ""
    method: Literal["llm", "truncate"] = "truncate"
    # Why it is no summary, or not only one; "" if all went well.
    reason: str = ""


async def llm_compact(
    messages: Sequence[Message],
    budget_tokens: int,
    summarize: Summarize | None,
    *,
    hint: Hint = "general",
    target_tokens: int | None = None,
    keep_newest: int = KEEP_NEWEST,
    keep_tokens: int = 0,
    counter: TokenCounter = ESTIMATE,
) -> Compacted:
    """Make messages fit a budget, by a summary of the older ones if that can be had.

    messages: oldest first; not changed.
    budget_tokens: within it nothing is done; as the counter counts.
    summarize: None leaves messages out instead.
    target_tokens: size wanted if something is done; the budget if not given.
    keep_newest: messages at the end that stay as they are, widened so that no tool call loses
    its result, as far as they fit; keep_tokens: more than those stay within this size.
    """
    given = tuple(messages)
    if counter.messages(given) <= budget_tokens:
        return Compacted(messages=given)
    target = budget_tokens if target_tokens is None else min(target_tokens, budget_tokens)
    if summarize is None:
        return _truncated(given, target, counter, "no compaction model is at hand")
    fold = _Fold.of(given, target, keep_newest, keep_tokens, counter)
    if all(map(is_summary, fold.older)):
        return _truncated(given, target, counter, "there is nothing older to summarize")
    room = max(target - counter.messages(fold.kept), target // 4)
    try:
        text = await summarize(fold.older, hint=hint, room_tokens=room)
        summary = _checked(text, fold.older, target - fold.fixed_tokens, counter)
    except SummaryRefusedError as refused:
        return _truncated(given, target, counter, refused.message)
    result = fold.with_summary(summary)
    reason = ""
    if counter.messages(result) > budget_tokens:
        result = smart_truncate(result, target, counter)
        reason = "the summary and the newest messages were still too long"
    return Compacted(
        messages=result,
        replaced=_gone(given, result),
        summary=summary_text((summary,)),
        method="llm",
        reason=reason,
    )


def truncate(
    messages: Sequence[Message],
    target_tokens: int,
    counter: TokenCounter,
    reason: str,
) -> Compacted:
    """Leave out the oldest messages until the rest fits; an earlier summary stays."""
    return _truncated(tuple(messages), target_tokens, counter, reason)


def _truncated(
    given: tuple[Message, ...],
    target: int,
    counter: TokenCounter,
    reason: str,
) -> Compacted:
    result = smart_truncate(given, target, counter)
    return Compacted(
        messages=result,
        replaced=_gone(given, result),
        summary=summary_text(given),
        reason=reason,
    )


def _gone(given: tuple[Message, ...], result: tuple[Message, ...]) -> tuple[int, ...]:
    """Return the indexes of the given messages that the result, in the same order, lacks."""
    known = {id(message) for message in given}
    kept = [message for message in result if id(message) in known]
    gone: list[int] = []
    for index in reversed(range(len(given))):
        if kept and kept[-1] is given[index]:
            kept.pop()
        else:
            gone.append(index)
    return tuple(reversed(gone))


def _checked(
    text: str,
    older: Sequence[Message],
    max_tokens: int,
    counter: TokenCounter,
) -> Message:
    summary = summary_message(text.strip(), position=_last_position(older))
    if not text.strip():
        raise SummaryRefusedError("the summary was empty")
    if counter.message(summary) >= counter.messages(older):
        raise SummaryRefusedError("the summary was longer than what it replaces")
    if counter.message(summary) > max_tokens:
        raise SummaryRefusedError("the summary was longer than the room there is for it")
    return summary


def _last_position(messages: Sequence[Message]) -> int | None:
    return max(
        (message.position for message in messages if message.position is not None),
        default=None,
    )


@dataclass(frozen=True, slots=True)
class _Fold:
    """Which messages a summary is to replace."""

    units: list[Unit]
    # Indexes of the units to be replaced, ascending.
    older_at: list[int]
    # Of what has to stay, whatever its size.
    fixed_tokens: int

    @classmethod
    def of(
        cls,
        given: Sequence[Message],
        target: int,
        keep_newest: int,
        keep_tokens: int,
        counter: TokenCounter,
    ) -> "_Fold":
        units = split_units(given)
        movable = [index for index, unit in enumerate(units) if _is_compactable(unit)]
        stays = set(range(len(units))).difference(movable)
        fixed_tokens = sum(counter.messages(units[index]) for index in stays)
        # An eighth is left for the summary.
        room = target * 7 // 8 - fixed_tokens
        candidates = [units[index] for index in movable]
        first = _first_kept(candidates, room, keep_newest, keep_tokens, counter)
        if not _begins_well(units, stays, movable[first:]):
            first = _from_user(candidates, first, room, counter)
        return cls(units, movable[:first], fixed_tokens)

    @property
    def older(self) -> list[Message]:
        """The messages to be replaced, in order."""
        return [message for index in self.older_at for message in self.units[index]]

    @property
    def kept(self) -> list[Message]:
        """The messages that stay, in order."""
        gone = set(self.older_at)
        return [
            message
            for index, unit in enumerate(self.units)
            if index not in gone
            for message in unit
        ]

    def with_summary(self, summary: Message) -> tuple[Message, ...]:
        """Return the messages with the summary where the oldest replaced one was."""
        gone = set(self.older_at)
        result: list[Message] = []
        for index, unit in enumerate(self.units):
            if index == self.older_at[0]:
                result.append(summary)
            if index not in gone:
                result += unit
        return tuple(result)


def _is_compactable(unit: Unit) -> bool:
    return is_summary(unit[0]) or not is_protected(unit)


def _first_kept(
    movable: list[Unit],
    room: int,
    keep_newest: int,
    keep_tokens: int,
    counter: TokenCounter,
) -> int:
    """Return the index of the oldest compactable unit that stays as it is."""
    first, kept, tokens = len(movable), 0, 0
    while first and not is_summary(movable[first - 1][0]):
        tokens += counter.messages(movable[first - 1])
        is_wanted = kept < keep_newest or tokens <= keep_tokens
        if not is_wanted or tokens > room:
            break
        first -= 1
        kept += len(movable[first])
    return first


def _begins_well(units: list[Unit], stays: set[int], kept: list[int]) -> bool:
    """Whether the first message after the system messages would be one of the user."""
    order = sorted([*(index for index in stays if units[index][0].role != "system"), *kept])
    return not order or order[0] in stays or units[order[0]][0].role == "user"


def _from_user(candidates: list[Unit], first: int, room: int, counter: TokenCounter) -> int:
    """Return where the kept units begin if they begin with a message of the user."""
    wider = candidates[first - 1 :] if first else []
    if wider and wider[0][0].role == "user" and sum(map(counter.messages, wider)) <= room:
        return first - 1
    return next(
        (at for at in range(first, len(candidates)) if candidates[at][0].role == "user"),
        len(candidates),
    )
