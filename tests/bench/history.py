"""What the length of a conversation costs a load, once a checkpoint stands for most of it."""

import asyncio
import statistics
import time
from collections.abc import Iterator
from functools import partial

from sqlalchemy import Connection, insert

from shared.clock import now
from shared.database import Database, open_database
from shared.ids import ConversationId, TurnId, new_conversation_id, new_message_id, new_turn_id
from shared.repositories import conversations, summaries, turns
from shared.repositories.summaries import Checkpoint
from shared.repositories.turns import NewTurn
from shared.settings import Settings
from shared.tables import Message
from shared.turn_state import TurnMode
from tests.bench.measured import Measured
from workers.context.db_memory import DbMemory, StoredHistory
from workers.react.engine import load_history

SHORT, LONG = 100, 100_000
# Messages after the checkpoint.
NEWEST = 6
LOADS = 500
MAX_RATIO = 1.2
BATCH = 5_000
TEXT = "The mill turns slowly while the river carries its leaves past the old weir. " * 10


def measure_history(database_url: str) -> Iterator[Measured]:
    """Yield how long it takes to load a short and a very long conversation."""
    settings = Settings.from_environment({"TURNMILL_DATABASE_URL": database_url})
    short_s, long_s = asyncio.run(_measure(settings))
    ratio = long_s / short_s
    yield Measured(
        f"load of {SHORT:,} messages {1e3 * short_s:.2f} ms, of {LONG:,} {1e3 * long_s:.2f} ms,"
        f" {NEWEST} of them after the checkpoint: {ratio:.2f} times (at most {MAX_RATIO:g})",
        holds=ratio <= MAX_RATIO,
    )


async def _measure(settings: Settings) -> tuple[float, float]:
    database = open_database(settings)
    try:
        ids = {length: await _seed(database, length) for length in (SHORT, LONG)}
        times: dict[int, list[float]] = {SHORT: [], LONG: []}
        # By turns, so that whatever else the machine does slows both.
        for _ in range(LOADS):
            for length, conversation_id in ids.items():
                started_at = time.perf_counter()
                await _load(database, conversation_id, length)
                times[length].append(time.perf_counter() - started_at)
    finally:
        await database.close()
    return statistics.median(times[SHORT]), statistics.median(times[LONG])


async def _load(database: Database, conversation_id: ConversationId, length: int) -> None:
    async def read() -> StoredHistory:
        return await database.read(
            lambda connection: load_history(connection, conversation_id, length + 1),
        )

    messages = await DbMemory(read, budget_tokens=100_000).get_messages()
    if len(messages) != 1 + NEWEST:
        raise RuntimeError(f"{len(messages)} messages were loaded, not {1 + NEWEST}")


async def _seed(database: Database, length: int) -> ConversationId:
    conversation_id, turn_id = new_conversation_id(), new_turn_id()

    def begin(connection: Connection) -> None:
        conversations.insert_conversation(connection, conversation_id, turn_count=1)
        turn = NewTurn(
            id=turn_id,
            conversation_id=conversation_id,
            mode=TurnMode.REACT,
            input="",
            instructions=None,
            model=None,
            tools=None,
            metadata={},
        )
        turns.insert_turn(connection, turn, 1)

    def end(connection: Connection) -> None:
        checkpoint = Checkpoint(
            until_position=length - NEWEST,
            method="llm",
            content="They spoke of the mill.",
            tokens=6,
            model="fast",
        )
        summaries.insert_checkpoint(connection, conversation_id, checkpoint)

    await database.write(begin)
    for first in range(1, length + 1, BATCH):
        positions = range(first, min(first + BATCH, length + 1))
        await database.write(partial(_insert, conversation_id, turn_id, positions))
    await database.write(end)
    return conversation_id


def _insert(
    conversation_id: ConversationId,
    turn_id: TurnId,
    positions: range,
    connection: Connection,
) -> None:
    rows = [
        {
            "id": new_message_id(),
            "conversation_id": conversation_id,
            "position": position,
            "role": "user" if position % 2 else "assistant",
            "kind": "input" if position % 2 else "answer",
            "content": TEXT,
            "turn_id": turn_id,
        }
        for position in positions
    ]
    connection.execute(insert(Message).values(created_at=now()), rows)
