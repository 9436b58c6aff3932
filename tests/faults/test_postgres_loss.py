"""Postgres dies while turns run: they are let go, taken up again, and answered once."""

import asyncio

import pytest

from demo.reply import Reply
from shared.turn_state import TurnStatus
from tests.helpers.async_client import AsyncTurnmillClient
from tests.helpers.fold import assert_agrees, fold
from tests.helpers.model_server import ScriptedModel
from tests.helpers.product import Product
from tests.helpers.servers import PostgresServer
from tests.helpers.sse import ServerEvent

TURNS = 20
TIMEOUT_S = 60.0


@pytest.mark.parametrize("fresh_product", ["postgres"], indirect=True)
async def test_postgres_killed_while_turns_wait_for_the_model(
    fresh_product: Product,
    own_postgres: PostgresServer,
    model: ScriptedModel,
) -> None:
    """20 turns wait for the model; their answers come while the database is away."""
    hold = model.hold()
    model.respond = lambda _request: Reply(text="Answered all the same.")
    fresh_product.start_api()
    fresh_product.start_worker()
    async with AsyncTurnmillClient(fresh_product.url) as client:
        posted = await asyncio.gather(*(client.post_turn(f"turn {n}") for n in range(TURNS)))
        seen: list[list[ServerEvent]] = [[] for _ in posted]
        readers = [
            asyncio.create_task(client.follow(turn["id"], events, timeout_s=TIMEOUT_S))
            for turn, events in zip(posted, seen, strict=True)
        ]
        await asyncio.to_thread(hold.wait_reached, TIMEOUT_S, calls=TURNS)

        await asyncio.to_thread(own_postgres.kill)
        hold.release()
        await asyncio.to_thread(own_postgres.restart)

        await asyncio.gather(*readers)
        turns = await asyncio.gather(*(client.get_turn(turn["id"]) for turn in posted))
        pages = await asyncio.gather(*(client.messages(turn["conversation_id"]) for turn in turns))
    assert {turn["status"] for turn in turns} == {TurnStatus.COMPLETED}
    for turn, events in zip(turns, seen, strict=True):
        assert_agrees(fold(events), turn)
    assert all([message["kind"] for message in page] == ["input", "answer"] for page in pages)
