"""Searching a conversation's past, on each database."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from sqlalchemy import insert

from shared.admission import admit_turn
from shared.clock import now
from shared.database import Database, open_database
from shared.errors import ToolError
from shared.ids import ConversationId, TurnId, new_conversation_id, new_message_id
from shared.settings import Settings
from shared.tables import Message
from shared.turn_state import IfBusy
from tests.helpers.posting import new_turn
from tests.unit.workers.tools.calls import CONTEXT, call
from workers.tools.text_search import BATCH, text_search
from workers.tools.tool import ToolContext


@pytest.fixture
async def database(settings: Settings) -> AsyncIterator[Database]:
    database = open_database(settings)
    yield database
    await database.close()


async def converse(database: Database, texts: list[str]) -> ToolContext:
    """Write a conversation whose last text is the running turn's; return that turn's context."""
    conversation_id = new_conversation_id()
    past, running = [
        await admit(database, conversation_id, starts=starts) for starts in (True, False)
    ]
    rows = [
        {
            "id": new_message_id(),
            "conversation_id": conversation_id,
            "position": position,
            "role": "user" if position % 2 else "assistant",
            "kind": "input" if position % 2 else "answer",
            "content": text,
            "turn_id": running if position == len(texts) else past,
        }
        for position, text in enumerate(texts, start=1)
    ]
    await database.write(
        lambda connection: connection.execute(insert(Message).values(created_at=now()), rows),
    )
    return replace(CONTEXT, conversation_id=conversation_id, turn_id=running, read=database.read)


async def admit(database: Database, conversation_id: ConversationId, *, starts: bool) -> TurnId:
    turn = new_turn(conversation_id)
    await database.write(
        lambda connection: admit_turn(
            connection,
            turn,
            starts_conversation=starts,
            if_busy=IfBusy.QUEUE,
        ),
    )
    return turn.id


async def search(context: ToolContext, words: str, max_results: int = 5) -> list[str]:
    found = await call(text_search, words=words, context=context, max_results=max_results)
    return found.splitlines()


async def test_messages_with_all_words_are_found_newest_first(database: Database) -> None:
    texts = ["The red house", "a RED\n mouse", "the house is reddish", "blue", "red house?"]
    context = await converse(database, texts)

    lines = await search(context, "red House")

    assert [line.split(":")[0].split(",")[0] for line in lines] == ["[3] user", "[1] user"]
    assert lines[1].endswith(": The red house")
    assert len(await search(context, "red", max_results=2)) == 2
    assert (await search(context, "red", max_results=2))[1].endswith(": a RED mouse")


async def test_case_is_ignored_in_every_alphabet(database: Database) -> None:
    context = await converse(database, ["ÄPFEL und Дом", "?"])

    for words in ("äpfel", "ÄPFEL", "дом ÄpfEL"):
        assert len(await search(context, words)) == 1, words


async def test_wildcards_are_plain_characters(database: Database) -> None:
    context = await converse(database, ["100% of_it", "1000 of it", "?"])

    assert [line[:3] for line in await search(context, "100% of_")] == ["[1]"]


async def test_nothing_found_is_said(database: Database) -> None:
    context = await converse(database, ["only this"])

    for words in ("this", "other"):
        assert await search(context, words) == ["No earlier message holds these words."]


async def test_other_conversations_are_not_searched(database: Database) -> None:
    await converse(database, ["secret", "?"])
    context = await converse(database, ["known", "?"])

    assert await search(context, "secret") == ["No earlier message holds these words."]


async def test_long_message_is_shown_around_the_word(database: Database) -> None:
    context = await converse(database, ["x" * 5_000 + " needle " + "y" * 5_000, "?"])

    (line,) = await search(context, "needle")

    assert "needle" in line
    assert line.endswith("y…")
    assert len(line) < 500


async def test_all_of_a_long_conversation_is_searched(database: Database) -> None:
    texts = ["needle one", *["hay"] * (2 * BATCH), "needle two", "hay", "needle?"]
    context = await converse(database, texts)

    lines = await search(context, "needle")

    assert [line.split("]")[0] for line in lines] == [f"[{2 * BATCH + 2}", "[1"]


@pytest.mark.parametrize("words", [" ", "a b c d e f g h i j k"])
async def test_number_of_words_is_bounded(database: Database, words: str) -> None:
    context = await converse(database, ["a", "?"])

    with pytest.raises(ToolError, match="1 to 10 words"):
        await search(context, words)
