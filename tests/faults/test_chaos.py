"""Everything at once: workers are killed one after the other and Redis forgets, under load."""

import asyncio
import random

import pytest

from demo.protocol import ChatRequest
from demo.reply import Reply, ToolCall
from shared.turn_state import TurnStatus
from tests.helpers.async_client import AsyncTurnmillClient
from tests.helpers.fold import assert_agrees, fold
from tests.helpers.model_server import ScriptedModel
from tests.helpers.product import Death, Product
from tests.helpers.servers import RedisServer
from tests.helpers.sse import ServerEvent

TURNS = 120
WORKERS = 2
ROUNDS = 8
MODEL_S = 0.4
TIMEOUT_S = 110.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def respond(request: ChatRequest) -> Reply:
    """Use a tool, then answer in two calls."""
    if request.tools and request.messages[-1].role == "user":
        call = ToolCall(name="calculator", arguments={"expression": "1+1"}, id="call_sum")
        return Reply(tool_calls=(call,), first_byte_s=MODEL_S)
    return Reply(text="The sum is two.", first_byte_s=MODEL_S)


@pytest.mark.parametrize("seed", [1, 2])
async def test_every_turn_is_answered_once(
    fresh_product: Product,
    own_redis: RedisServer,
    model: ScriptedModel,
    seed: int,
) -> None:
    """A worker is killed, stopped or asked to leave in each of eight rounds; all turns end."""
    generator = random.Random(seed)
    model.respond = respond
    deaths = [Death.KILL, Death.KILL, Death.TERM]
    if "postgresql" in fresh_product.environment["TURNMILL_DATABASE_URL"]:
        # On SQLite one that is paused in a transaction holds up all writers, as long as it is.
        deaths.append(Death.STOP)
    fresh_product.environment["TURNMILL_MAX_CRASHES"] = "50"
    await asyncio.to_thread(fresh_product.start_api)
    workers = [
        await asyncio.to_thread(fresh_product.start_worker, f"first-{number}")
        for number in range(WORKERS)
    ]
    async with AsyncTurnmillClient(fresh_product.url) as client:
        seen: list[list[ServerEvent]] = []
        readers = []
        turns = []
        for round_number in range(ROUNDS):
            posted = await asyncio.gather(
                *(client.post_turn(f"turn {n}") for n in range(TURNS // ROUNDS)),
            )
            for turn in posted:
                turns.append(turn["id"])
                seen.append([])
                follow = client.follow(turn["id"], seen[-1], timeout_s=TIMEOUT_S)
                readers.append(asyncio.create_task(follow))
            victim = workers.pop(generator.randrange(len(workers)))
            death = generator.choice(deaths)
            await asyncio.to_thread(victim.die, death)
            if generator.random() < 0.4:
                await asyncio.to_thread(own_redis.flush)
            name = f"round-{round_number}"
            workers.append(await asyncio.to_thread(fresh_product.start_worker, name))
        await asyncio.gather(*readers)
        ended = await asyncio.gather(*(client.get_turn(turn_id) for turn_id in turns))
        pages = await asyncio.gather(*(client.messages(turn["conversation_id"]) for turn in ended))
    assert {turn["status"] for turn in ended} == {TurnStatus.COMPLETED}
    for turn, events, page in zip(ended, seen, pages, strict=True):
        assert_agrees(fold(events), turn)
        assert [message["kind"] for message in page] == ["input", "answer"]
        assert turn["answer"] == "The sum is two."
