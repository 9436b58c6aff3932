"""One contract for all memories, and what each does of its own."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given

from tests.unit.workers.context.histories import (
    ANY_MESSAGES,
    ScriptedSummaries,
    a_round,
    assistant,
    user,
)
from workers.context.db_memory import DbMemory, StoredHistory
from workers.context.llm_compact import SummaryRefusedError
from workers.context.memory import BaseMemory, SummaryMemory, WindowMemory
from workers.context.messages import Message
from workers.context.rounds import split_units
from workers.context.summary import HEADING, summary_message

SYSTEM = Message(role="system", content="Be careful.", origin="instructions")
PINNED = user("Never forget this.", pinned=True)


@dataclass(frozen=True)
class Stored:
    role: str
    text: str
    position: int
    attachments: tuple[()] = ()


async def window(messages: Sequence[Message]) -> BaseMemory:
    return await filled(WindowMemory(6), messages)


async def summary(messages: Sequence[Message]) -> BaseMemory:
    summaries = ScriptedSummaries("Short.")
    return await filled(SummaryMemory(summaries.summarize, threshold=6, keep_newest=3), messages)


async def refused_summary(messages: Sequence[Message]) -> BaseMemory:
    summaries = ScriptedSummaries(SummaryRefusedError("the model was away"))
    return await filled(SummaryMemory(summaries.summarize, threshold=6, keep_newest=3), messages)


async def database(messages: Sequence[Message]) -> BaseMemory:
    """Give the memory that is read-only: its messages are there before it is."""
    stored = [Stored(item.role, item.text, at) for at, item in enumerate(messages, start=1)]

    async def load() -> StoredHistory:
        return StoredHistory(checkpoint=None, messages=stored)

    return DbMemory(load, budget_tokens=900, summarize=ScriptedSummaries("Short.").summarize)


async def filled(memory: BaseMemory, messages: Sequence[Message]) -> BaseMemory:
    for message in messages:
        await memory.add_message(message)
    return memory


Make = Callable[[Sequence[Message]], Awaitable[BaseMemory]]
ALL = pytest.mark.parametrize("make", [window, summary, refused_summary, database])
WITH_STATE = pytest.mark.parametrize("make", [window, summary, refused_summary])
LONG = [message for n in range(20) for message in (user(f"q{n} " * 40), assistant(f"a{n} " * 40))]


@ALL
async def test_few_messages_are_all_there_in_order(make: Make) -> None:
    memory = await make([user("q"), assistant("a")])
    messages = await memory.get_messages()
    assert [(message.role, message.text) for message in messages] == [
        ("user", "q"),
        ("assistant", "a"),
    ]


@ALL
async def test_empty_memory_is_an_empty_list(make: Make) -> None:
    memory = await make([])
    assert await memory.get_messages() == []


@ALL
async def test_list_is_the_callers_own(make: Make) -> None:
    memory = await make([user("q"), assistant("a")])
    first = await memory.get_messages()
    first.clear()
    assert len(await memory.get_messages()) == 2


@ALL
async def test_of_many_messages_the_newest_stay(make: Make) -> None:
    memory = await make(LONG)
    kept = await memory.get_messages()
    assert len(kept) < len(LONG)
    newest = [message.text for message in kept if message.origin != "summary"]
    assert newest == [message.text for message in LONG[-len(newest) :]]
    assert kept[-1].text == LONG[-1].text


@ALL
async def test_reading_again_changes_nothing(make: Make) -> None:
    memory = await make(LONG)
    assert await memory.get_messages() == await memory.get_messages()


@ALL
async def test_never_begins_with_an_assistant(make: Make) -> None:
    for count in range(1, len(LONG)):
        memory = await make(LONG[:count])
        kept = [message for message in await memory.get_messages() if message.role != "system"]
        assert not kept or kept[0].role == "user"


@WITH_STATE
@given(messages=ANY_MESSAGES)
async def test_whatever_is_added(make: Make, messages: tuple[Message, ...]) -> None:
    given = list(messages)
    memory = await make(given)
    kept = await memory.get_messages()

    assert given == list(messages)
    # System and pinned messages stay, word for word; the others in their order; rounds whole.
    own = [message for message in kept if message.origin != "summary"]
    positions = [next(at for at, item in enumerate(messages) if item is one) for one in own]
    assert positions == sorted(positions)
    must_stay = [item for item in messages if item.pinned or item.role == "system"]
    assert all(any(item is one for one in own) for item in must_stay)
    whole = [unit for unit in split_units(messages) if len(unit) > 1]
    for unit in whole:
        assert sum(any(item is one for one in own) for item in unit) in (0, len(unit))


@WITH_STATE
async def test_cleared_memory_is_empty_and_usable(make: Make) -> None:
    memory = await make(LONG)
    await memory.clear()
    assert await memory.get_messages() == []
    await memory.add_message(user("again"))
    assert [message.text for message in await memory.get_messages()] == ["again"]


async def test_database_memory_is_read_only() -> None:
    memory = await database([user("q"), assistant("a")])
    await memory.add_message(user("more"))
    await memory.clear()
    assert [message.text for message in await memory.get_messages()] == ["q", "a"]


async def test_window_keeps_the_last_and_every_system_message() -> None:
    messages = [SYSTEM, user("1"), assistant("2"), user("3"), assistant("4"), user("5")]
    memory = await filled(WindowMemory(3), messages)
    assert await memory.get_messages() == [SYSTEM, *messages[3:]]


async def test_window_leaves_a_round_out_that_it_cannot_hold() -> None:
    memory = await filled(WindowMemory(3), [user("q"), *a_round("1", "2", "3"), user("next")])
    assert [message.text for message in await memory.get_messages()] == ["next"]


async def test_window_keeps_what_is_pinned() -> None:
    memory = await filled(WindowMemory(3), [PINNED, *LONG])
    assert await memory.get_messages() == [PINNED, *LONG[-2:]]


async def test_summary_replaces_the_older_by_one_call() -> None:
    summaries = ScriptedSummaries("They talked.")
    memory = SummaryMemory(summaries.summarize, threshold=5, keep_newest=2)
    await filled(memory, [SYSTEM, *LONG[:6]])

    expected = [SYSTEM, summary_message("They talked."), *LONG[4:6]]
    assert await memory.get_messages() == expected
    assert await memory.get_messages() == expected
    assert summaries.asked == [LONG[:4]]


async def test_summary_is_folded_into_the_next_one() -> None:
    summaries = ScriptedSummaries("They talked.")
    memory = SummaryMemory(summaries.summarize, threshold=5, keep_newest=2)
    await filled(memory, LONG[:6])
    await memory.get_messages()
    summaries.text = "They talked on."
    await filled(memory, LONG[6:10])

    heads = [message.text for message in await memory.get_messages() if HEADING in message.text]
    assert heads == [f"{HEADING}\nThey talked on."]
    assert summaries.asked[1][0].text == f"{HEADING}\nThey talked."


async def test_refused_summary_is_not_asked_for_again_at_once() -> None:
    summaries = ScriptedSummaries(SummaryRefusedError("the model was away"))
    memory = SummaryMemory(summaries.summarize, threshold=5, keep_newest=2)
    await filled(memory, LONG[:6])
    assert await memory.get_messages() == LONG[4:6]
    await filled(memory, LONG[6:8])
    assert await memory.get_messages() == LONG[4:8]
    assert len(summaries.asked) == 1


@pytest.mark.parametrize(("threshold", "keep_newest"), [(5, 5), (5, 0), (1, 1)])
def test_limits_that_make_no_sense_are_refused(threshold: int, keep_newest: int) -> None:
    with pytest.raises(ValueError, match="keep_newest must lie between"):
        SummaryMemory(ScriptedSummaries().summarize, threshold=threshold, keep_newest=keep_newest)
    with pytest.raises(ValueError, match="at least 1"):
        WindowMemory(0)
