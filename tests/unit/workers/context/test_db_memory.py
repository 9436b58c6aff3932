from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from workers.context.db_memory import DbMemory
from workers.context.estimate import estimate_messages
from workers.context.messages import Message


@dataclass(frozen=True)
class Stored:
    role: str
    text: str


class BrokenError(Exception):
    pass


def memory_of(*stored: Stored, budget_tokens: int = 1_000) -> DbMemory:
    async def load() -> Sequence[Stored]:
        return stored

    return DbMemory(load, budget_tokens=budget_tokens)


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


async def test_over_the_budget_the_oldest_are_left_out() -> None:
    long = (Stored("user", "q " * 200), Stored("assistant", "a " * 200))
    memory = memory_of(*long * 10, budget_tokens=500)
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


async def test_attributes_describe_the_last_load() -> None:
    stored = [Stored("user", "q " * 2_000), Stored("assistant", "a")]

    async def load() -> Sequence[Stored]:
        return stored

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
    async def load() -> Sequence[Stored]:
        raise BrokenError

    with pytest.raises(BrokenError):
        await DbMemory(load, budget_tokens=100).get_messages()
