"""The API dies while clients read; they come back to another process and miss nothing."""

import asyncio

from demo.reply import Reply
from tests.helpers.async_client import AsyncTurnmillClient
from tests.helpers.fold import assert_agrees, fold
from tests.helpers.model_server import ScriptedModel
from tests.helpers.product import Death, Product
from tests.helpers.sse import ServerEvent
from tests.helpers.waiting import wait_until_async

TURNS = 20
TIMEOUT_S = 60.0


async def test_api_killed_while_clients_read(fresh_product: Product, model: ScriptedModel) -> None:
    """Every client has half of its answer when the API is killed; another one is started."""
    text = " ".join(f"word{number}" for number in range(40))
    hold = model.hold(after_chunks=20)
    model.respond = lambda _request: Reply(text=text)
    api = fresh_product.start_api()
    fresh_product.start_worker()
    async with AsyncTurnmillClient(fresh_product.url) as client:
        posted = await asyncio.gather(*(client.post_turn(f"turn {n}") for n in range(TURNS)))
        seen: list[list[ServerEvent]] = [[] for _ in posted]
        readers = [
            asyncio.create_task(client.follow(turn["id"], events, timeout_s=TIMEOUT_S))
            for turn, events in zip(posted, seen, strict=True)
        ]
        await wait_until_async(
            lambda: all(any(event.event == "answer" for event in events) for events in seen),
            timeout_s=TIMEOUT_S,
            message="not all clients have a part of the answer",
        )

        await asyncio.to_thread(api.die, Death.KILL)
        await asyncio.to_thread(fresh_product.start_api)
        hold.release()

        await asyncio.gather(*readers)
        turns = await asyncio.gather(*(client.get_turn(turn["id"]) for turn in posted))
    for turn, events in zip(turns, seen, strict=True):
        folded = fold(events)
        assert folded.answer == text
        assert_agrees(folded, turn)
        ids = [event.id for event in events]
        assert len(ids) == len(set(ids)), "no event came twice"
