"""The one fitting step before the wire: whatever is sent to a model has passed it.

Within the budget a request keeps its very messages. Over it, the history is folded first and then
the work of the turn, each to leave half of the budget free; what is cut inside of a message says
so, and the compactions tell of all of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shared.errors import ContextLengthError
from workers.context.budget import Budget
from workers.context.compaction import Compaction, newest_gone
from workers.context.counter import TokenCounter
from workers.context.cuts import MAX_CHARS, cap_message, shrink, text_length
from workers.context.hints import Hint
from workers.context.llm_compact import Compacted, Summarize, llm_compact
from workers.context.messages import Message
from workers.context.meter import TokenMeter
from workers.context.pins import pinned_messages, unpin_oldest
from workers.context.rounds import split_units
from workers.context.summary import is_summary
from workers.context.truncate import is_protected
from workers.model.values import ModelRequest

# Room the messages get where instructions and tools fill the budget, at the answer's expense.
MIN_ROOM_TOKENS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A request that fits."""

    # With max_tokens set.
    request: ModelRequest
    # In the order in which they were made; empty: the messages are those that were given.
    compactions: tuple[Compaction, ...] = ()


class ContextGuard:
    """Makes requests fit their model's window.

    meter: measures the requests of one turn.
    summarize: None leaves the oldest messages out instead.
    """

    def __init__(self, meter: TokenMeter, summarize: Summarize | None) -> None:
        self._meter = meter
        self._summarize = summarize

    async def fit(
        self,
        request: ModelRequest,
        *,
        hint: Hint,
        limit_tokens: int | None = None,
    ) -> Fitted:
        """Return the request, made to fit if it does not.

        hint: what the messages are for; chooses the summary's prompt.
        limit_tokens: most tokens it may have, where that is less than the budget.
        The given request is not changed. System and pinned messages stay; a message over
        MAX_CHARS is cut at its end, pinned messages that are over the budget by themselves and
        tool results that would not be seen at all are cut in the middle.
        A request for a compaction is never compacted by a model.
        Raises ContextLengthError if what has to stay exceeds the window.
        """
        budget = Budget.of(request.target)
        limit = min(limit_tokens or budget.usable, budget.usable)
        fitting = _Fitting(request, hint, self._meter)
        fitting.cap()
        if fitting.tokens > limit:
            summarize = None if request.purpose == "compaction" else self._summarize
            await fitting.compact(budget, limit, summarize)
        max_tokens = budget.max_tokens_for(fitting.tokens)
        if request.max_tokens is not None:
            max_tokens = min(max_tokens, request.max_tokens)
        return Fitted(
            request=replace(fitting.request, max_tokens=max_tokens),
            compactions=fitting.finish(),
        )


class _Fitting:
    """One request on its way into the budget."""

    def __init__(self, request: ModelRequest, hint: Hint, meter: TokenMeter) -> None:
        self.request = request
        self.tokens = meter.measure(request)
        self._given = request
        self._given_tokens = self.tokens
        self._hint = hint
        self._meter = meter
        # Of what was done since the last compaction.
        self._reasons: list[str] = []
        self._unpinned = 0
        self._done: list[Compaction] = []

    def cap(self) -> None:
        """Cut what no request may hold at all."""
        messages = self.request.messages
        long = sum(text_length(message) > MAX_CHARS for message in messages)
        if long:
            what = f"{long} of the messages had more than {MAX_CHARS} characters and were cut"
            self._set(tuple(map(cap_message, messages)), what)
            self.tokens = self._meter.measure(self.request)

    async def compact(self, budget: Budget, limit: int, summarize: Summarize | None) -> None:
        """Bring the request down to the limit, and well below it where that can be done.

        Raises ContextLengthError.
        """
        self._reasons.append(f"about {self.tokens} tokens are over the budget of {limit}")
        counter = self._meter.counter(self.request.target)
        counted = counter.request(self.request)
        # The counter may know less than a reported size: its limit is lower by as much.
        limit = min(limit, limit * counted // self.tokens)
        layout = _Layout.of(self.request, counter)
        room = max(
            limit - layout.fixed,
            min(MIN_ROOM_TOKENS, (budget.context_size - layout.fixed) // 2),
        )
        self._prepare(room, min(limit // 2, room), counter)
        await self._fold_history(room, summarize, counter)
        await self._fold_work(room, summarize, counter)
        self.tokens = counter.request(self.request)
        self._check(layout.fixed, counter)

    def finish(self) -> tuple[Compaction, ...]:
        """Return what was done."""
        if self._reasons and self.request.messages != self._given.messages and not self._done:
            self._note(Compacted(messages=self.request.messages), (), self._hint, self.tokens)
        return tuple(self._done)

    def _prepare(self, room: int, max_pinned: int, counter: TokenCounter) -> None:
        """Make what must stay small enough to stay."""
        before = self.request.messages
        messages = unpin_oldest(before, max_pinned, counter)
        self._unpinned = len(pinned_messages(before)) - len(pinned_messages(messages))
        if self._unpinned:
            self._set(messages, f"{self._unpinned} of the user's messages lost their pin")
        shrunk = _shrink_pinned(messages, room, counter)
        if shrunk != messages:
            what = "what must stay is over it by itself and was cut to its beginning and end"
            self._set(shrunk, what)
        cut = _shrink_newest_round(shrunk, room * 3 // 4, counter)
        if cut != shrunk:
            self._set(cut, "the newest tool results were cut in the middle")

    async def _fold_history(
        self,
        room: int,
        summarize: Summarize | None,
        counter: TokenCounter,
    ) -> None:
        layout = _Layout.of(self.request, counter)
        # An eighth is the history's, as far as what must stay of the work leaves it.
        least = min(room // 8, max(room - _must_stay(layout.work, counter), 0))
        target = max(room // 2 - counter.messages(layout.work), least)
        compacted = await llm_compact(
            layout.history,
            target,
            summarize,
            hint="general",
            keep_tokens=target // 2,
            counter=counter,
        )
        if compacted.replaced:
            self._replace(layout, compacted, is_history=True, counter=counter)

    async def _fold_work(
        self,
        room: int,
        summarize: Summarize | None,
        counter: TokenCounter,
    ) -> None:
        layout = _Layout.of(self.request, counter)
        history_tokens = counter.messages(layout.history)
        if history_tokens + counter.messages(layout.work) <= room * 3 // 4:
            return
        must_stay = _must_stay(layout.work, counter)
        target = max(room // 2 - history_tokens, must_stay * 8 // 7 + 1)
        compacted = await llm_compact(
            layout.work,
            min(target, room - history_tokens),
            summarize,
            hint=self._hint,
            keep_tokens=target // 2,
            counter=counter,
        )
        if compacted.replaced:
            self._replace(layout, compacted, is_history=False, counter=counter)

    def _replace(
        self,
        layout: "_Layout",
        compacted: Compacted,
        *,
        is_history: bool,
        counter: TokenCounter,
    ) -> None:
        given = layout.history if is_history else layout.work
        history, work = layout.history, layout.work
        history, work = (compacted.messages, work) if is_history else (history, compacted.messages)
        self.request = replace(self.request, messages=(*layout.head, *history, *work))
        hint = "general" if is_history else self._hint
        self._note(compacted, given if is_history else (), hint, counter.request(self.request))

    def _note(
        self,
        compacted: Compacted,
        history: tuple[Message, ...],
        hint: Hint,
        tokens_after: int,
    ) -> None:
        earlier = self._done[-1] if self._done else None
        given = len(self._given.messages)
        reasons = [*self._reasons, compacted.reason]
        compaction = Compaction(
            layer="guard",
            hint=hint,
            purpose=self.request.purpose,
            original_messages=earlier.kept_messages if earlier else given,
            kept_messages=len(self.request.messages),
            tokens_before=earlier.tokens_after if earlier else self._given_tokens,
            tokens_after=tokens_after,
            method=compacted.method,
            unpinned=self._unpinned,
            reason="; ".join(filter(None, reasons)),
            until_position=newest_gone(history, compacted) if history else None,
            replaced=() if history else compacted.replaced,
            summary=compacted.summary,
        )
        self._done.append(compaction)
        self._reasons, self._unpinned = [], 0

    def _set(self, messages: tuple[Message, ...], what: str) -> None:
        self.request = replace(self.request, messages=messages)
        self._reasons.append(what)

    def _check(self, fixed: int, counter: TokenCounter) -> None:
        """Raise ContextLengthError if the window is full before any answer."""
        target = self.request.target
        if self.tokens < target.context_size:
            return
        tools = counter.tools(self.request.tools)
        raise ContextLengthError(
            f"The request does not fit the window of {target.name}, {target.context_size} tokens:"
            f" the instructions take about {fixed - tools}, the schemas of"
            f" {len(self.request.tools)} tools {tools}, and the messages that must stay"
            f" {self.tokens - fixed}. Shorten the instructions, offer fewer tools, or use a model"
            " with a larger window",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The parts of a request: each is compacted by itself, and kept in a place of its own."""

    # The instructions.
    head: tuple[Message, ...]
    # Stored messages before the query, with the summary of those before them.
    history: tuple[Message, ...]
    # The query and all that came after it.
    work: tuple[Message, ...]
    # Tokens of the instructions and the tools.
    fixed: int

    @classmethod
    def of(cls, request: ModelRequest, counter: TokenCounter) -> "_Layout":
        messages = request.messages
        start = _run(messages, 0, lambda item: item.role == "system" and not is_summary(item))
        end = _run(messages, start, _is_history)
        work = messages[end:]
        instructions = [item for item in work if item.role == "system" and not is_summary(item)]
        return cls(
            head=messages[:start],
            history=messages[start:end],
            work=work,
            fixed=counter.tools(request.tools)
            + counter.messages(messages[:start])
            + counter.messages(instructions),
        )


def _run(messages: Sequence[Message], start: int, belongs: Callable[[Message], bool]) -> int:
    """Return where the run of messages that belong together ends, from start on."""
    return next(
        (at for at in range(start, len(messages)) if not belongs(messages[at])),
        len(messages),
    )


def _is_history(message: Message) -> bool:
    return message.origin == "history" or (is_summary(message) and message.position is not None)


def _shrink_pinned(
    messages: tuple[Message, ...],
    room: int,
    counter: TokenCounter,
) -> tuple[Message, ...]:
    """Cut pinned messages that are over the budget by themselves; half is left for the work."""
    pinned = pinned_messages(messages)
    if counter.messages(pinned) <= room:
        return messages
    shrunk = iter(shrink(pinned, room // 2, counter))
    pinned_ids = {id(message) for message in pinned}
    return tuple(next(shrunk) if id(item) in pinned_ids else item for item in messages)


def _newest_round(work: Sequence[Message]) -> tuple[Message, ...]:
    """Return the newest tool calls with their results, if nothing but pins came after them."""
    newest = next((unit for unit in reversed(split_units(work)) if not is_protected(unit)), ())
    return newest if len(newest) > 1 else ()


def _must_stay(work: Sequence[Message], counter: TokenCounter) -> int:
    """Return the tokens of what no compaction may take: the pinned, and the newest round."""
    return counter.messages(pinned_messages(work)) + counter.messages(_newest_round(work))


def _shrink_newest_round(
    messages: tuple[Message, ...],
    room: int,
    counter: TokenCounter,
) -> tuple[Message, ...]:
    """Cut the results of the last round if it would not fit.

    Left out as a whole, it would be asked for again and again.
    """
    newest = _newest_round(messages)
    left = room - counter.messages(pinned_messages(messages))
    if not newest or counter.messages(newest) <= left:
        return messages
    asked, *results = newest
    shrunk = iter(shrink(results, left - counter.message(asked), counter))
    result_ids = {id(result) for result in results}
    return tuple(next(shrunk) if id(item) in result_ids else item for item in messages)
