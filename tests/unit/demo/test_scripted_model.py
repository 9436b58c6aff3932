"""The scripted model on a real socket, as the official client sees it."""

import asyncio
import json
import time
from collections.abc import Iterable
from typing import Any

import httpx2
import pytest
from openai import (
    APIConnectionError,
    APIError,
    AsyncOpenAI,
    AuthenticationError,
    BadRequestError,
    NotFoundError,
    OpenAI,
    RateLimitError,
)
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

from demo.call import Outcome
from demo.reply import Fault, FaultKind, Reply, ToolCall, Usage
from tests.helpers.model_server import ScriptedModel, mentions
from tests.helpers.waiting import wait_until, wait_until_async

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]
MINIMAL: dict[str, Any] = {"model": "m", "messages": MESSAGES}
TRANSPORT_ERRORS = (APIError, httpx2.TransportError)


def say(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


async def stream(client: AsyncOpenAI, text: str = "Hello") -> list[ChatCompletionChunk]:
    chunks = await client.chat.completions.create(
        model="m",
        messages=say(text),
        stream=True,
        stream_options={"include_usage": True},
    )
    return [chunk async for chunk in chunks]


def text_of(chunks: Iterable[ChatCompletionChunk]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


async def test_answer_is_whole_without_streaming(model: ScriptedModel, client: AsyncOpenAI) -> None:
    call = ToolCall(name="calculator", arguments={"expression": "1+1"}, id="call_x")
    model.respond_with(Reply(text="Hello there", tool_calls=(call,), reasoning="Hm"))

    answer = await client.chat.completions.create(model="m", messages=MESSAGES)

    message = answer.choices[0].message
    assert (message.content, message.model_extra) == ("Hello there", {"reasoning_content": "Hm"})
    assert message.tool_calls is not None
    assert message.tool_calls[0].id == "call_x"
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_text_is_streamed_word_by_word(model: ScriptedModel, client: AsyncOpenAI) -> None:
    model.respond_with(Reply(text="one two three", reasoning=("Let ", "me see")))

    chunks = await stream(client)

    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    assert deltas[0].role == "assistant"
    assert [delta.content for delta in deltas if delta.content] == ["one ", "two ", "three"]
    assert [delta.model_extra["reasoning_content"] for delta in deltas if delta.model_extra] == [
        "Let ",
        "me see",
    ]
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].choices == []


async def test_tool_calls_come_in_pieces(model: ScriptedModel, client: AsyncOpenAI) -> None:
    first = ToolCall(name="calculator", arguments={"expression": "12345 * 67890"})
    model.respond_with(Reply(tool_calls=(first, ToolCall(name="current_time"))))

    chunks = await stream(client)

    pieces = [
        call
        for chunk in chunks
        for choice in chunk.choices
        for call in choice.delta.tool_calls or ()
    ]
    arguments = {0: "", 1: ""}
    for piece in pieces:
        assert piece.function is not None
        arguments[piece.index] += piece.function.arguments or ""
    assert json.loads(arguments[0]) == {"expression": "12345 * 67890"}
    assert arguments[1] == "{}"
    assert len(pieces) > 4
    assert len({piece.id for piece in pieces if piece.id}) == 2


async def test_half_a_character_can_be_streamed(model: ScriptedModel, client: AsyncOpenAI) -> None:
    model.respond_with(Reply(text=("\ud83d", "\ude00")))

    assert text_of(await stream(client)) == "\ud83d\ude00"


async def test_usage_can_be_set_or_left_out(model: ScriptedModel, client: AsyncOpenAI) -> None:
    usage = Usage(prompt_tokens=900, completion_tokens=7, cached_tokens=512)
    model.respond_with(Reply(text="a", usage=usage), Reply(text="a", reports_usage=False))

    chunks = await stream(client)

    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens_details is not None
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == 512
    assert not any(chunk.usage for chunk in await stream(client))
    assert model.total_usage.prompt_tokens > 900


async def test_malformed_request_is_refused_and_recorded(
    model: ScriptedModel,
    client: AsyncOpenAI,
) -> None:
    with pytest.raises(BadRequestError) as caught:
        await client.chat.completions.create(model="m", messages=MESSAGES, extra_body={"a": 1})

    assert caught.value.code == "unknown_parameter"
    assert [refusal.code for refusal in model.refusals] == ["unknown_parameter"]
    assert model.calls == []


async def test_key_model_and_length_are_checked() -> None:
    with ScriptedModel(models=("m",), api_key="right", context_size=20) as model:
        client = OpenAI(base_url=model.base_url, api_key="right", max_retries=0)
        create = client.chat.completions.create
        with pytest.raises(AuthenticationError):
            client.with_options(api_key="wrong").models.list()
        with pytest.raises(AuthenticationError):
            client.with_options(api_key="wrong").chat.completions.create(
                model="m", messages=MESSAGES
            )
        with pytest.raises(NotFoundError) as unknown:
            create(model="other", messages=MESSAGES)
        with pytest.raises(BadRequestError) as too_long:
            create(model="m", messages=MESSAGES, max_tokens=20)
        create(model="m", messages=MESSAGES, max_tokens=10)
        assert [item.id for item in client.models.list()] == ["m"]
        client.close()

    assert unknown.value.code == "model_not_found"
    assert too_long.value.code == "context_length_exceeded"
    assert "maximum context length is 20 tokens" in too_long.value.message
    assert model.refusals == []
    assert [refusal.status for refusal in model.configured_refusals] == [401, 404, 400]


async def test_unknown_url_is_answered_in_the_same_shape(model: ScriptedModel) -> None:
    async with httpx2.AsyncClient(base_url=model.base_url, trust_env=False) as http:
        answer = await http.post("/completions", json={})
        wrong_method = await http.get("/chat/completions")

    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")
    assert wrong_method.status_code == 405


async def test_status_fault_carries_retry_after(model: ScriptedModel, client: AsyncOpenAI) -> None:
    fault = Fault(kind=FaultKind.HTTP_STATUS, status=429, retry_after="7")
    model.respond_with(Reply(fault=fault))

    with pytest.raises(RateLimitError) as caught:
        await stream(client)

    assert caught.value.response.headers["retry-after"] == "7"
    assert model.calls[0].outcome is Outcome.FAULT


async def test_status_fault_with_a_body_of_its_own(
    model: ScriptedModel,
    client: AsyncOpenAI,
) -> None:
    body = json.dumps({"error": {"message": "Slow down", "code": "slow"}})
    model.respond_with(
        Reply(fault=Fault(kind=FaultKind.HTTP_STATUS, status=400, body=body)),
    )

    with pytest.raises(BadRequestError, match="Slow down"):
        await stream(client)


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize(
    "fault",
    [Fault(kind=FaultKind.DISCONNECT), Fault(kind=FaultKind.CUT, after_chunks=1)],
    ids=lambda fault: fault.kind,
)
async def test_broken_connection_is_seen(
    model: ScriptedModel,
    client: AsyncOpenAI,
    fault: Fault,
    *,
    is_streamed: bool,
) -> None:
    model.respond_with(Reply(text="one two three", fault=fault))

    ask = stream(client) if is_streamed else client.chat.completions.create(**MINIMAL)
    with pytest.raises(TRANSPORT_ERRORS):
        await ask

    assert model.calls[0].outcome is Outcome.FAULT
    assert text_of(await stream(client)) == "ok"


async def test_cut_comes_after_the_chunks_it_names(
    model: ScriptedModel,
    client: AsyncOpenAI,
) -> None:
    model.respond_with(Reply(text="one two three", fault=Fault(kind=FaultKind.CUT, after_chunks=3)))
    chunks = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)

    seen = [await anext(chunks) for _ in range(3)]
    with pytest.raises(TRANSPORT_ERRORS):
        await anext(chunks)

    assert text_of(seen) == "one two "


async def test_truncated_stream_ends_without_a_reason(
    model: ScriptedModel,
    client: AsyncOpenAI,
) -> None:
    fault = Fault(kind=FaultKind.TRUNCATE, after_chunks=2)
    model.respond_with(Reply(text="one two", fault=fault))

    chunks = await stream(client)

    assert text_of(chunks) == "one "
    assert chunks[-1].choices[0].finish_reason is None


async def test_corrupt_chunk_is_no_json(model: ScriptedModel, client: AsyncOpenAI) -> None:
    fault = Fault(kind=FaultKind.CORRUPT_CHUNK, after_chunks=2)
    model.respond_with(Reply(text="one two", fault=fault))

    with pytest.raises(json.JSONDecodeError):
        await stream(client)


async def test_stall_goes_on_when_released(model: ScriptedModel, client: AsyncOpenAI) -> None:
    fault = Fault(kind=FaultKind.STALL, after_chunks=2)
    model.respond_with(Reply(text="one two", fault=fault))
    chunks = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    first = [await anext(chunks), await anext(chunks)]

    assert text_of(first) == "one "
    model.release_stalls()
    assert text_of([chunk async for chunk in chunks]) == "two"


async def test_delays_are_kept(model: ScriptedModel, client: AsyncOpenAI) -> None:
    model.respond_with(Reply(text="a b", first_byte_s=0.05, between_chunks_s=0.02))
    started_at = time.monotonic()

    await stream(client)

    # Chunks: role, two words, finish reason, usage.
    assert 0.05 + 5 * 0.02 <= time.monotonic() - started_at < 2


async def test_rules_tell_conversations_apart(model: ScriptedModel, client: AsyncOpenAI) -> None:
    model.when(mentions("apple"), Reply(text="red"), Reply(text="green"))
    model.when(mentions("pear"), lambda request: Reply(text=request.last_user_text.upper()))
    model.respond_with(Reply(text="queued"))
    asked = ("apple", "pear", "plum", "apple", "apple", "plum")

    answers = [text_of(await stream(client, text)) for text in asked]

    assert answers == ["red", "PEAR", "queued", "green", "green", "ok"]


async def test_function_may_be_async(model: ScriptedModel, client: AsyncOpenAI) -> None:
    async def respond(_request: object) -> Reply:
        await asyncio.sleep(0)
        return Reply(text="late")

    model.respond = respond

    assert text_of(await stream(client)) == "late"


async def test_call_is_recorded(model: ScriptedModel, client: AsyncOpenAI) -> None:
    before_s = time.monotonic()

    await stream(client)

    [call] = model.calls
    assert call.body["messages"] == MESSAGES
    assert json.loads(call.raw) == call.body
    assert call.headers["authorization"] == "Bearer k"
    assert call.is_finished
    assert call.ended_at_s is not None
    assert before_s <= call.received_at_s <= call.ended_at_s <= time.monotonic()
    assert call.usage == model.total_usage


async def test_held_before_the_first_byte(model: ScriptedModel, client: AsyncOpenAI) -> None:
    with model.hold(mentions("wait")) as hold:
        held = asyncio.create_task(stream(client, "wait"))
        await asyncio.to_thread(hold.wait_reached)
        assert text_of(await stream(client, "pass")) == "ok"
        assert not held.done()

    assert text_of(await held) == "ok"
    assert text_of(await stream(client, "wait")) == "ok"
    assert hold.reached == 1


async def test_held_after_chunks(model: ScriptedModel, client: AsyncOpenAI) -> None:
    hold = model.hold(after_chunks=2)
    model.respond_with(Reply(text="one two"))

    chunks = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    first = [await anext(chunks), await anext(chunks)]
    await asyncio.to_thread(hold.wait_reached)
    hold.release()

    assert text_of(first) == "one "
    assert text_of([chunk async for chunk in chunks]) == "two"


async def test_client_that_leaves_a_held_call_is_noticed(
    model: ScriptedModel,
    client: AsyncOpenAI,
) -> None:
    hold = model.hold()
    held = asyncio.create_task(stream(client))
    await asyncio.to_thread(hold.wait_reached)
    left_at_s = time.monotonic()

    held.cancel()
    await wait_until_async(
        lambda: model.calls[0].is_disconnected,
        message="the model has not seen that the client is gone",
    )

    ended_at_s = model.calls[0].ended_at_s
    assert ended_at_s is not None
    assert left_at_s <= ended_at_s < left_at_s + 2
    assert model.calls[0].usage is None
    hold.release()


async def test_client_that_leaves_in_mid_stream_is_noticed(
    model: ScriptedModel,
    client: AsyncOpenAI,
) -> None:
    model.respond_with(Reply(text="one " * 1_000, between_chunks_s=0.05))
    chunks = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    await anext(chunks)

    await chunks.close()

    await wait_until_async(
        lambda: model.calls[0].is_disconnected,
        message="the model has not seen that the client is gone",
    )


def test_hold_that_nobody_reaches_is_said(model: ScriptedModel) -> None:
    with pytest.raises(TimeoutError, match="0 of 1 calls have come to the hold"):
        model.hold().wait_reached(0.01)
    with pytest.raises(TimeoutError, match="0 of 2 calls have come"):
        model.wait_for_calls(2, 0.01)


async def test_stop_breaks_held_calls_off_and_start_serves_again(
    model: ScriptedModel,
    client: AsyncOpenAI,
) -> None:
    hold = model.hold(after_chunks=1)
    held = asyncio.create_task(stream(client))
    await asyncio.to_thread(hold.wait_reached)

    await asyncio.to_thread(model.stop)

    with pytest.raises(TRANSPORT_ERRORS):
        await held
    with pytest.raises(APIConnectionError):
        await stream(client)
    assert model.calls[0].outcome is Outcome.ABORTED
    await asyncio.to_thread(model.start)
    assert text_of(await stream(client)) == "ok"


async def test_many_streams_are_held_at_once(model: ScriptedModel) -> None:
    hold = model.hold(after_chunks=1)
    limits = httpx2.Limits(max_connections=None)
    body: dict[str, Any] = {"model": "m", "messages": MESSAGES, "stream": True}
    async with httpx2.AsyncClient(limits=limits, timeout=30, trust_env=False) as http:
        url = f"{model.base_url}/chat/completions"
        posts = [asyncio.create_task(http.post(url, json=body)) for _ in range(300)]
        await asyncio.to_thread(hold.wait_reached, 30, calls=300)
        hold.release()
        answers = await asyncio.gather(*posts)

    assert all(answer.text.endswith("data: [DONE]\n\n") for answer in answers)
    wait_until(
        lambda: all(call.is_finished for call in model.calls),
        message="some calls have not finished",
    )
    assert len(model.calls) == 300
