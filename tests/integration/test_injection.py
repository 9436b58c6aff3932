"""Injected messages and cancels through the running product."""

import asyncio
import random
from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest

from demo.protocol import ChatRequest
from demo.reply import Reply, ToolCall
from shared.turn_state import InjectionState, TurnStatus
from tests.helpers.async_client import AsyncTurnmillClient
from tests.helpers.client import RefusedError
from tests.helpers.fold import assert_agrees, fold
from tests.helpers.model_server import ScriptedModel, mentions
from tests.helpers.product import Product
from tests.helpers.tools import read_starts
from tests.helpers.waiting import wait_until

TIMEOUT_S = 20.0
TRIES = 1_000
AT_ONCE = 40
MODEL_S = 0.1


@pytest.fixture
def world(fresh_product: Product) -> Product:
    """Give a running product with a tool that waits for a file."""
    fresh_product.environment["TURNMILL_TOOLS"] = "tests.helpers.tools:hold_once"
    fresh_product.environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    fresh_product.start_api()
    fresh_product.start_worker()
    return fresh_product


def tool_reply(gate: Path) -> Reply:
    return Reply(tool_calls=(ToolCall(name="hold_once", arguments={"gate": str(gate)}, id="c1"),))


def roles(request: ChatRequest) -> list[str]:
    return [message.role for message in request.messages]


def test_message_during_a_tool_call_follows_its_result(
    world: Product,
    model: ScriptedModel,
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    model.respond_with(tool_reply(gate), Reply(text="brief"), Reply(text="final"))
    with world.client() as client:
        turn_id = client.post_turn("first question")["id"]
        wait_until(lambda: read_starts(gate), timeout_s=TIMEOUT_S, message="no tool call")
        client.inject(turn_id, "one more thing")
        client.inject(turn_id, "and another")
        gate.touch()
        turn = client.get_turn(turn_id, wait_s=TIMEOUT_S)
        states = [item["state"] for item in client.injections(turn_id)]
        messages = client.messages(turn["conversation_id"])
        with client.events(turn_id) as stream:
            events = stream.read_all()

    assert states == [InjectionState.COMMITTED] * 2
    second = model.calls[1].request
    assert roles(second) == ["system", "user", "assistant", "tool", "user"]
    assert "one more thing\n\nand another" in second.messages[-1].text
    assert [message["kind"] for message in messages] == ["input", "injection", "answer"]
    assert_agrees(fold(events), turn)
    assert "one more thing" in model.calls[2].request.messages[-1].text, "synthesis sees it"


def test_message_while_the_answer_streams_makes_the_turn_go_on(
    world: Product,
    model: ScriptedModel,
) -> None:
    model.respond_with(Reply(text="The capital of France is Paris."), Reply(text="Madrid."))
    hold = model.hold(after_chunks=4)
    with world.client() as client:
        turn_id = client.post_turn("capital?")["id"]
        hold.wait_reached(TIMEOUT_S)
        client.inject(turn_id, "I meant of Spain")
        hold.release()
        turn = client.get_turn(turn_id, wait_s=TIMEOUT_S)
        with client.events(turn_id) as stream:
            events = stream.read_all()

    assert turn["answer"] == "Madrid."
    assert roles(model.calls[1].request) == ["system", "user", "assistant", "user"]
    assert any(event.event == "answer" and event.data["status"] == "restart" for event in events)
    assert_agrees(fold(events), turn)


def test_cancel_closes_the_open_model_request_and_leaves_a_note(
    world: Product,
    model: ScriptedModel,
) -> None:
    model.respond_with(Reply(text="A long answer that nobody wants any more."))
    hold = model.hold(after_chunks=4)
    with world.client() as client:
        turn_id = client.post_turn("talk")["id"]
        hold.wait_reached(TIMEOUT_S)
        client.inject(turn_id, "never read")
        client.cancel(turn_id, reason="enough")
        turn = client.get_turn(turn_id, wait_s=TIMEOUT_S)
        with client.events(turn_id) as stream:
            events = stream.read_all()
        states = [item["state"] for item in client.injections(turn_id)]
        messages = client.messages(turn["conversation_id"])
        assert client.cancel(turn_id)["status"] == TurnStatus.CANCELLED
    wait_until(
        lambda: model.calls[0].is_disconnected,
        timeout_s=TIMEOUT_S,
        message="the model goes on",
    )
    hold.release()

    assert turn["status"] == TurnStatus.CANCELLED
    assert states == [InjectionState.RETURNED]
    assert [message["kind"] for message in messages] == ["input", "note"]
    assert messages[1]["content"].startswith("A long")
    assert_agrees(fold(events), turn)
    assert events[-1].data["reason"] == "enough"


def test_queued_turns_run_in_order_and_a_cancelled_one_calls_no_model(
    world: Product,
    model: ScriptedModel,
) -> None:
    hold = model.hold(mentions("first"))
    with world.client() as client:
        first = client.post_turn("first")
        conversation = {"conversation_id": first["conversation_id"]}
        hold.wait_reached(TIMEOUT_S)
        second = client.post_turn("second", **conversation)
        third = client.post_turn("third", **conversation)
        assert [second["queue_position"], third["queue_position"]] == [1, 2]
        with pytest.raises(RefusedError) as refused:
            client.post_turn("refused", if_busy="reject", **conversation)
        client.cancel(second["id"])
        hold.release()
        turn = client.get_turn(third["id"], wait_s=TIMEOUT_S)
        messages = client.messages(first["conversation_id"])

    assert refused.value.status == HTTPStatus.CONFLICT
    assert turn["status"] == TurnStatus.COMPLETED
    assert [item["content"] for item in messages if item["role"] == "user"] == ["first", "third"]
    assert not any(mentions("second")(call.request) for call in model.calls)


def test_message_to_an_ended_turn_is_refused_with_its_status(
    world: Product,
    model: ScriptedModel,
) -> None:
    model.respond_with(Reply(text="done"))
    with world.client() as client:
        turn_id = client.post_turn("question")["id"]
        client.get_turn(turn_id, wait_s=TIMEOUT_S)
        with pytest.raises(RefusedError) as refused:
            client.inject(turn_id, "too late")
    assert refused.value.status == HTTPStatus.CONFLICT
    assert "completed" in str(refused.value.problem)


async def test_no_message_is_lost_at_the_end_of_a_turn(
    world: Product,
    model: ScriptedModel,
) -> None:
    """1,000 messages, each sent close to its turn's end: answered in it, or refused."""
    model.respond = lambda _request: Reply(text="Fine, thank you.", first_byte_s=MODEL_S)
    generator = random.Random(7)
    gate = asyncio.Semaphore(AT_ONCE)

    async def try_once(client: AsyncTurnmillClient, number: int) -> tuple[str, bool]:
        text = f"message-{number:04d}."
        async with gate:
            turn_id = (await client.post_turn(f"question {number}"))["id"]
            await asyncio.sleep(MODEL_S + generator.uniform(-0.05, 0.1))
            try:
                await client.inject(turn_id, text)
            except aiohttp.ClientResponseError as error:
                if error.status != HTTPStatus.CONFLICT:
                    raise
                return text, False
            turn = await client.get_turn(turn_id, wait_s=TIMEOUT_S)
            assert turn["status"] == TurnStatus.COMPLETED
            return text, True

    async with AsyncTurnmillClient(world.url) as client:
        tries = await asyncio.gather(*(try_once(client, number) for number in range(TRIES)))

    seen = {
        message.text
        for call in model.calls
        for message in call.request.messages
        if message.role == "user"
    }
    joined = "\n".join(seen)
    accepted = [text for text, is_accepted in tries if is_accepted]
    refused = [text for text, is_accepted in tries if not is_accepted]
    assert accepted, "no message came in time: the timing tries nothing"
    assert refused, "no message came late: the timing tries nothing"
    assert all(text in joined for text in accepted)
    assert not any(text in joined for text in refused)
