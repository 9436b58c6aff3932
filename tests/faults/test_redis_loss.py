"""Redis forgets everything, or dies, while turns run: all end, and readers miss nothing."""

import asyncio

import pytest

from demo.reply import Reply
from shared.turn_state import TurnStatus
from tests.helpers.async_client import AsyncTurnmillClient
from tests.helpers.fold import assert_agrees, fold
from tests.helpers.model_server import ScriptedModel
from tests.helpers.product import Product
from tests.helpers.servers import RedisServer
from tests.helpers.sse import ServerEvent

TURNS = 50
SLOTS = 20
TIMEOUT_S = 60.0


@pytest.mark.parametrize("loss", ["flush", "restart"])
async def test_redis_lost_while_turns_run_and_wait(
    fresh_product: Product,
    own_redis: RedisServer,
    model: ScriptedModel,
    loss: str,
) -> None:
    """20 turns run, 30 wait in the queue; then Redis is empty."""
    hold = model.hold()
    model.respond = lambda _request: Reply(text="Answered all the same.")
    fresh_product.start_api()
    fresh_product.start_worker(slots=SLOTS)
    async with AsyncTurnmillClient(fresh_product.url) as client:
        posted = await asyncio.gather(*(client.post_turn(f"turn {n}") for n in range(TURNS)))
        seen: list[list[ServerEvent]] = [[] for _ in posted]
        readers = [
            asyncio.create_task(client.follow(turn["id"], events, timeout_s=TIMEOUT_S))
            for turn, events in zip(posted, seen, strict=True)
        ]
        await asyncio.to_thread(hold.wait_reached, TIMEOUT_S, calls=SLOTS)

        if loss == "flush":
            own_redis.flush()
        else:
            await asyncio.to_thread(own_redis.kill)
            await asyncio.to_thread(own_redis.restart)
        hold.release()

        await asyncio.gather(*readers)
        turns = await asyncio.gather(*(client.get_turn(turn["id"]) for turn in posted))
    assert {turn["status"] for turn in turns} == {TurnStatus.COMPLETED}
    for turn, events in zip(turns, seen, strict=True):
        assert_agrees(fold(events), turn)
    assert len(model.calls) == TURNS, "no model call was made twice"
