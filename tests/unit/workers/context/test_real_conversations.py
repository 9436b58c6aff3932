"""Every real conversation at twenty budgets: what compaction promises, on what people said."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby

import pytest

from tests.helpers.data import DATA, Chat, load_chats
from tests.unit.workers.context.histories import FixedCalibration, ScriptedSummaries, stored
from workers.context.budget import Budget
from workers.context.counter import ESTIMATE
from workers.context.guard import ContextGuard
from workers.context.llm_compact import SummaryRefusedError, llm_compact
from workers.context.messages import Message
from workers.context.meter import TokenMeter
from workers.context.rounds import split_units
from workers.context.summary import is_summary
from workers.context.truncate import is_protected, smart_truncate
from workers.model.values import ModelRequest, ModelTarget, ToolSchema

BUDGETS = [int(4_000 * 1.16**step) for step in range(20)]
# What the compaction model answers, from one conversation to the next.
SUMMARIES = (
    "They spoke about a booking, and nothing was decided.",
    SummaryRefusedError("the compaction model refused to summarize"),
    "",
    "On and on. " * 30_000,
    SummaryRefusedError("the compaction model failed: it was away"),
)
SYSTEM = Message(role="system", content="Be careful.", origin="instructions")
PINNED = Message(
    role="user", content="By the way: window seats only.", pinned=True, origin="injection"
)
TOOL = ToolSchema(name="look", description="Look it up.", parameters={"type": "object"})


@cache
def conversations() -> tuple[tuple[Message, ...], ...]:
    """Return all that was said: the short chats one after the other, per language."""
    found: list[tuple[Message, ...]] = []
    for path in sorted(DATA.glob("*.jsonl")):
        chats = load_chats(path)
        if path.name.startswith("multilingual"):
            by_language = groupby(sorted(chats, key=_language), key=_language)
            found += [tuple(_join(list(group))) for _, group in by_language]
        else:
            found += [tuple(_join([chat])) for chat in chats]
    return tuple(found)


def _language(chat: Chat) -> str:
    return chat.language


def _join(chats: list[Chat]) -> list[Message]:
    """Return the messages of chats as one conversation, without their instructions."""
    return [message for chat in chats for message in chat.messages if message.role != "system"]


def check_kept(given: Sequence[Message], kept: Sequence[Message]) -> None:
    """Check that of the given messages whole units are kept, in order, and word for word."""
    own = [message for message in kept if not is_summary(message)]
    by_id = {id(message): at for at, message in enumerate(given)}
    positions = [by_id[id(message)] for message in own]
    assert positions == sorted(positions)
    for unit in split_units(given):
        count = sum(id(message) in {id(item) for item in own} for message in unit)
        assert count in (0, len(unit))
        assert count or not is_protected(unit)
    check_valid(kept)


def check_valid(messages: Sequence[Message]) -> None:
    """Check what any provider demands: tool calls answered, and no answer at the beginning."""
    rest = [message for message in messages if message.role != "system"]
    assert not rest or rest[0].role == "user"
    for unit in split_units(rest):
        asked = [call.id for call in unit[0].tool_calls]
        assert [message.tool_call_id for message in unit[1:]] == asked
        assert unit[0].role != "tool"


def with_pin(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages with the system message before them and a pinned one within."""
    at = next(
        (
            at
            for at, item in enumerate(messages)
            if at >= len(messages) // 3 and item.role == "user"
        ),
        0,
    )
    return (SYSTEM, *messages[:at], PINNED, *messages[at:])


@pytest.mark.parametrize("budget", BUDGETS)
def test_truncation(budget: int) -> None:
    for messages in map(with_pin, conversations()):
        kept = smart_truncate(messages, budget)
        check_kept(messages, kept)
        assert ESTIMATE.messages(kept) <= budget


@pytest.mark.parametrize("budget", BUDGETS)
async def test_compaction(budget: int) -> None:
    for number, messages in enumerate(map(with_pin, conversations())):
        summaries = ScriptedSummaries(SUMMARIES[number % len(SUMMARIES)])
        compacted = await llm_compact(messages, budget, summaries.summarize)
        check_kept(messages, compacted.messages)
        assert ESTIMATE.messages(compacted.messages) <= budget
        asked = [id(message) for messages in summaries.asked for message in messages]
        assert id(PINNED) not in asked
        assert id(SYSTEM) not in asked
        assert len(summaries.asked) <= 1


@pytest.mark.parametrize("budget", BUDGETS)
async def test_guard(budget: int) -> None:
    meter = TokenMeter(FixedCalibration())
    target = ModelTarget(
        name="model",
        base_url="http://model",
        api_key="k",
        context_size=budget + 1_000,
        max_output_tokens=1_000,
    )
    assert Budget.of(target).usable == budget
    for number, messages in enumerate(conversations()):
        # The first half was said before the turn, the rest is its work.
        at = [at for at, item in enumerate(messages) if item.role == "user"]
        middle = at[len(at) // 2]
        history = stored(*messages[:middle])
        query = replace(messages[middle], pinned=True, origin="query")
        work = messages[middle + 1 :]
        request = ModelRequest(
            target=target, messages=(SYSTEM, *history, query, *work), tools=(TOOL,)
        )
        summaries = ScriptedSummaries(SUMMARIES[number % len(SUMMARIES)])
        fitted = await ContextGuard(meter, summaries.summarize).fit(request, hint="react_iteration")

        kept = fitted.request.messages
        assert request.messages == (SYSTEM, *history, query, *work)
        assert meter.measure(fitted.request) <= budget
        assert kept[0] is SYSTEM
        assert any(message is query for message in kept)
        check_valid(kept)
        if not fitted.compactions:
            assert kept is request.messages
