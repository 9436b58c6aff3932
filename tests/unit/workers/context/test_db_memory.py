from dataclasses import dataclass

import pytest

from shared.attachment import Attachment
from shared.repositories.summaries import Checkpoint
from tests.unit.workers.context.histories import ScriptedSummaries
from workers.context.db_memory import DbMemory, StoredHistory
from workers.context.estimate import estimate_messages
from workers.context.llm_compact import Summarize, SummaryRefusedError
from workers.context.messages import Message
from workers.context.summary import HEADING


@dataclass(frozen=True)
class Stored:
    role: str
    text: str
    position: int = 0
    attachments: tuple[Attachment, ...] = ()


class BrokenError(Exception):
    pass


def history_of(*stored: Stored, checkpoint: Checkpoint | None = None) -> StoredHistory:
    first = checkpoint.until_position + 1 if checkpoint else 1
    return StoredHistory(
        checkpoint=checkpoint,
        messages=[
            Stored(message.role, message.text, position)
            for position, message in enumerate(stored, start=first)
        ],
    )


def memory_of(
    *stored: Stored,
    budget_tokens: int = 1_000,
    summarize: Summarize | None = None,
    checkpoint: Checkpoint | None = None,
) -> DbMemory:
    async def load() -> StoredHistory:
        return history_of(*stored, checkpoint=checkpoint)

    return DbMemory(load, budget_tokens=budget_tokens, summarize=summarize)


def checkpoint_of(content: str, *, until_position: int = 40) -> Checkpoint:
    return Checkpoint(
        until_position=until_position,
        method="llm" if content else "truncate",
        content=content,
        tokens=3,
        model=None,
    )


TALK = (Stored("user", "q"), Stored("assistant", "a"))


async def test_history_is_returned_in_order() -> None:
    memory = memory_of(*TALK, *TALK)
    messages = await memory.get_messages()
    assert [(message.role, message.text) for message in messages] == [
        ("user", "q"),
        ("assistant", "a"),
    ] * 2
    assert {message.origin for message in messages} == {"history"}
    assert not any(message.pinned for message in messages)
    assert not memory.was_compacted
    assert memory.compaction is None
    assert memory.original_count == memory.compacted_count == 4


async def test_no_history_is_empty() -> None:
    memory = memory_of()
    assert await memory.get_messages() == []
    assert not memory.was_compacted


async def test_trailing_user_message_is_dropped() -> None:
    memory = memory_of(*TALK, Stored("user", "current"))
    assert [message.text for message in await memory.get_messages()] == ["q", "a"]
    assert memory.original_count == 2
    assert not memory.was_compacted


async def test_messages_of_other_roles_are_left_out() -> None:
    memory = memory_of(Stored("system", "s"), *TALK)
    assert [message.role for message in await memory.get_messages()] == ["user", "assistant"]


LONG = (Stored("user", "q " * 200), Stored("assistant", "a " * 200))


async def test_over_the_budget_the_oldest_are_left_out_down_to_half_of_it() -> None:
    memory = memory_of(*LONG * 10, budget_tokens=1_000)
    messages = await memory.get_messages()
    assert len(messages) == 4
    assert messages[0].role == "user"
    compaction = memory.compaction
    assert compaction is not None
    assert memory.was_compacted
    assert (memory.original_count, memory.compacted_count) == (20, 4)
    assert (compaction.original_messages, compaction.kept_messages) == (20, 4)
    assert (compaction.layer, compaction.method) == ("db_memory", "truncate")
    assert compaction.tokens_after == estimate_messages(messages) <= 500
    assert compaction.tokens_before == 20 * 104
    assert (compaction.until_position, compaction.summary) == (16, "")


async def test_over_the_budget_the_older_are_summarized() -> None:
    summaries = ScriptedSummaries("They talked.")
    memory = memory_of(*LONG * 10, budget_tokens=1_000, summarize=summaries.summarize)
    messages = await memory.get_messages()
    assert messages[0].text == f"{HEADING}\nThey talked."
    assert messages[0].position == 16
    assert [message.position for message in messages[1:]] == [17, 18, 19, 20]
    assert len(summaries.asked[0]) == 16
    compaction = memory.compaction
    assert compaction is not None
    assert (compaction.method, compaction.until_position) == ("llm", 16)
    assert compaction.summary == "They talked."


async def test_five_messages_that_become_five_were_compacted() -> None:
    summaries = ScriptedSummaries("s")
    stored = [Stored("user", "q " * 400), *[Stored("user", "a " * 60)] * 4, Stored("assistant", "")]
    memory = memory_of(*stored, budget_tokens=300, summarize=summaries.summarize)
    await memory.get_messages()
    assert memory.was_compacted


async def test_load_begins_at_the_checkpoint() -> None:
    memory = memory_of(*TALK, checkpoint=checkpoint_of("Before."))
    messages = await memory.get_messages()
    assert [message.text for message in messages] == [f"{HEADING}\nBefore.", "q", "a"]
    assert [message.position for message in messages] == [40, 41, 42]
    assert not memory.was_compacted


async def test_checkpoint_of_a_truncation_has_no_message() -> None:
    memory = memory_of(*TALK, checkpoint=checkpoint_of(""))
    assert [message.position for message in await memory.get_messages()] == [41, 42]


async def test_only_what_came_after_the_checkpoint_is_folded_in() -> None:
    summaries = ScriptedSummaries("All of it.")
    memory = memory_of(
        *LONG * 5,
        budget_tokens=1_000,
        summarize=summaries.summarize,
        checkpoint=checkpoint_of("Before."),
    )
    messages = await memory.get_messages()
    (asked,) = summaries.asked
    assert asked[0].text == f"{HEADING}\nBefore."
    assert [message.position for message in asked[1:]] == [41, 42, 43, 44, 45, 46]
    assert [HEADING in message.text for message in messages] == [True] + [False] * 4


async def test_refused_summary_keeps_the_earlier_one() -> None:
    summaries = ScriptedSummaries(SummaryRefusedError("it was empty"))
    memory = memory_of(
        *LONG * 5,
        budget_tokens=1_000,
        summarize=summaries.summarize,
        checkpoint=checkpoint_of("Before."),
    )
    messages = await memory.get_messages()
    assert messages[0].text == f"{HEADING}\nBefore."
    compaction = memory.compaction
    assert compaction is not None
    assert (compaction.method, compaction.summary) == ("truncate", "Before.")
    assert "it was empty" in compaction.reason
    assert compaction.until_position == 46


async def test_attributes_describe_the_last_load() -> None:
    stored = [Stored("user", "q " * 2_000), Stored("assistant", "a")]

    async def load() -> StoredHistory:
        return history_of(*stored)

    memory = DbMemory(load, budget_tokens=100)
    assert await memory.get_messages() == []
    assert memory.was_compacted
    stored[:] = TALK
    assert len(await memory.get_messages()) == 2
    assert not memory.was_compacted


async def test_adding_and_clearing_do_nothing() -> None:
    memory = memory_of(*TALK)
    await memory.add_message(Message(role="user", content="new"))
    await memory.clear()
    assert len(await memory.get_messages()) == 2


async def test_returned_list_is_the_callers_own() -> None:
    memory = memory_of(*TALK)
    (await memory.get_messages()).clear()
    assert len(await memory.get_messages()) == 2


async def test_failed_load_is_no_empty_history() -> None:
    async def load() -> StoredHistory:
        raise BrokenError

    with pytest.raises(BrokenError):
        await DbMemory(load, budget_tokens=100).get_messages()
