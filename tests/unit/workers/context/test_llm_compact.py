from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.workers.context.histories import (
    ANY_MESSAGES,
    ScriptedSummaries,
    a_round,
    assistant,
    user,
)
from workers.context.estimate import estimate_messages
from workers.context.llm_compact import SummaryRefusedError, llm_compact
from workers.context.messages import Message
from workers.context.rounds import split_units
from workers.context.summary import HEADING, is_summary, summary_message

SYSTEM = Message(role="system", content="Be careful.", origin="instructions")


def talk(count: int, text: str = "word " * 40) -> list[Message]:
    """Return messages of 54 tokens each."""
    return [user(text) if at % 2 == 0 else assistant(text) for at in range(count)]


async def test_nothing_stays_nothing() -> None:
    summaries = ScriptedSummaries()
    compacted = await llm_compact([], 100, summaries.summarize)
    assert compacted.messages == ()
    assert summaries.asked == []


async def test_within_the_budget_nothing_is_done() -> None:
    summaries = ScriptedSummaries()
    messages = talk(4)
    compacted = await llm_compact(messages, 1_000, summaries.summarize)
    assert list(compacted.messages) == messages
    assert (compacted.replaced, summaries.asked) == ((), [])


async def test_older_messages_become_one_summary_and_the_newest_four_stay() -> None:
    summaries = ScriptedSummaries()
    messages = talk(10)
    compacted = await llm_compact(messages, 400, summaries.summarize)
    assert compacted.messages == (summary_message("What was said before."), *messages[6:])
    assert compacted.replaced == (0, 1, 2, 3, 4, 5)
    assert (compacted.method, compacted.reason) == ("llm", "")
    assert summaries.asked == [messages[:6]]


async def test_more_of_the_newest_stay_if_asked() -> None:
    compacted = await llm_compact(talk(12), 400, ScriptedSummaries().summarize, keep_newest=6)
    assert len(compacted.messages) == 7


async def test_more_of_the_newest_stay_within_a_size() -> None:
    messages = talk(20)
    compacted = await llm_compact(messages, 800, ScriptedSummaries().summarize, keep_tokens=440)
    assert compacted.messages[1:] == tuple(messages[12:])


async def test_newest_that_do_not_fit_are_summarized_too() -> None:
    summaries = ScriptedSummaries()
    messages = [*talk(2), *talk(4, "long " * 400)]
    compacted = await llm_compact(messages, 600, summaries.summarize)
    assert len(summaries.asked[0]) > 2
    assert estimate_messages(compacted.messages) <= 600


@pytest.mark.parametrize("text", [SummaryRefusedError("it failed"), "", "  \n", "long " * 900])
async def test_without_a_usable_summary_the_newest_that_fit_are_kept(
    text: str | Exception,
) -> None:
    summaries = ScriptedSummaries(text)
    messages = talk(10)
    compacted = await llm_compact(messages, 300, summaries.summarize)
    assert len(summaries.asked) == 1
    assert compacted.messages == tuple(messages[6:])
    assert (compacted.method, compacted.summary) == ("truncate", "")
    assert compacted.reason
    assert not any(HEADING in message.text for message in compacted.messages)


async def test_summary_without_room_is_refused() -> None:
    messages = [SYSTEM, *talk(40)]
    compacted = await llm_compact(messages, 200, ScriptedSummaries("w " * 500).summarize)
    assert "room" in compacted.reason
    assert estimate_messages(compacted.messages) <= 200


async def test_pinned_and_system_messages_stay_in_their_places() -> None:
    summaries = ScriptedSummaries()
    pinned = user("remember this", pinned=True)
    messages = [SYSTEM, *talk(4), pinned, *talk(8)]
    compacted = await llm_compact(messages, 400, summaries.summarize)
    summary = summary_message("What was said before.")
    assert compacted.messages == (SYSTEM, summary, pinned, *messages[-4:])
    assert pinned not in summaries.asked[0]
    assert SYSTEM not in summaries.asked[0]


async def test_rounds_stay_whole() -> None:
    rounds = [a_round(*["r " * 60] * 3, name=f"c{at}") for at in range(4)]
    messages = [user("q", pinned=True), *(message for one in rounds for message in one)]
    compacted = await llm_compact(messages, 300, ScriptedSummaries().summarize)
    assert compacted.messages[2:] == rounds[-1]


async def test_the_kept_ones_begin_with_the_user() -> None:
    messages = [*talk(7), user("word " * 40)]
    compacted = await llm_compact(messages, 350, ScriptedSummaries().summarize)
    assert compacted.messages[1].role == "user"


async def test_earlier_summary_is_summarized_first_and_replaced() -> None:
    summaries = ScriptedSummaries("newer")
    kept_as_text = Message(role="system", content=f"{HEADING}\nolder")
    compacted = await llm_compact([SYSTEM, kept_as_text, *talk(10)], 400, summaries.summarize)
    assert summaries.asked[0][0] is kept_as_text
    assert [message.text for message in compacted.messages if is_summary(message)] == [
        f"{HEADING}\nnewer"
    ]


async def test_a_summary_alone_is_not_summarized_again() -> None:
    summaries = ScriptedSummaries()
    messages = [summary_message("w " * 200), *talk(2)]
    compacted = await llm_compact(messages, 150, summaries.summarize)
    assert summaries.asked == []
    assert compacted.method == "truncate"


async def test_target_is_aimed_at_only_over_the_budget() -> None:
    messages = talk(8)
    same = await llm_compact(messages, 500, None, target_tokens=100)
    assert list(same.messages) == messages
    fewer = await llm_compact(messages, 400, None, target_tokens=120)
    assert estimate_messages(fewer.messages) <= 120


@given(
    ANY_MESSAGES,
    st.integers(0, 3_000),
    st.sampled_from([None, "Short.", "long " * 200, SummaryRefusedError("no")]),
    st.integers(0, 6),
)
async def test_properties(
    messages: tuple[Message, ...],
    budget: int,
    summary: str | Exception | None,
    keep_newest: int,
) -> None:
    copies = tuple(replace(message) for message in messages)
    summarize = None if summary is None else ScriptedSummaries(summary).summarize
    compacted = await llm_compact(messages, budget, summarize, keep_newest=keep_newest)
    kept = compacted.messages

    assert messages == copies
    must_stay = [
        unit
        for unit in split_units(messages)
        if any(message.pinned or message.role == "system" for message in unit)
    ]
    assert estimate_messages(kept) <= max(
        budget, sum(estimate_messages(unit) for unit in must_stay)
    )
    gone = [messages[index] for index in compacted.replaced]
    assert not any(message.pinned or message.role == "system" for message in gone)
    own = [message for message in kept if not is_summary(message)]
    assert own == [message for at, message in enumerate(messages) if at not in compacted.replaced]
    for unit in split_units(kept):
        assert [message.tool_call_id for message in unit[1:]] == [
            call.id for call in unit[0].tool_calls
        ]
    if compacted.replaced:
        first = next((item for item in own if item.role != "system"), None)
        assert first is None or first.role == "user" or first.pinned
