"""Real conversations, turn by turn through the running product."""

from pathlib import Path

import pytest

from demo.reply import Reply, ToolCall
from tests.helpers.airline_tools import SETTING, TOOLS
from tests.helpers.client import TurnmillClient
from tests.helpers.data import Chat, Exchange, load_multilingual_chats, load_tool_trajectories
from tests.helpers.fold import assert_agrees, fold
from tests.helpers.model_server import ScriptedModel
from tests.helpers.product import Product


@pytest.fixture
def world(fresh_product: Product) -> Product:
    """Give a running product that knows the recorded tools."""
    fresh_product.environment["TURNMILL_TOOLS"] = SETTING
    fresh_product.environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    # What was recorded has no notes of ours in it.
    for note in (
        "SELF_REFLECTION_INTERVAL",
        "CYCLE_DETECTION_THRESHOLD",
        "COMPLETION_CHECK_MIN_TOOLS",
    ):
        fresh_product.environment[f"REACT_{note}"] = "0"
    fresh_product.start_api()
    fresh_product.start_worker()
    return fresh_product


def script(model: ScriptedModel, exchange: Exchange) -> None:
    """Queue what the model said in an exchange: its tool calls, then the answer."""
    asked = [message for message in exchange.rounds if message.tool_calls]
    for message in asked:
        calls = tuple(
            ToolCall(id=call.id, name=call.name, arguments=call.arguments)
            for call in message.tool_calls
        )
        model.respond_with(Reply(text=message.text, tool_calls=calls))
    if asked:
        model.respond_with(Reply(text="I have what I need."))
    model.respond_with(Reply(text=exchange.answer))


def replay(client: TurnmillClient, model: ScriptedModel, chat: Chat) -> None:
    conversation: dict[str, str] = {}
    said: list[tuple[str, str]] = []
    for exchange in chat.exchanges:
        script(model, exchange)
        first_call = len(model.calls)
        with client.stream_turn(
            exchange.question,
            instructions=chat.instructions,
            tools=list(TOOLS),
            **conversation,
        ) as stream:
            events = stream.read_all()
        turn = client.get_turn(events[0].data["turn_id"])
        conversation = {"conversation_id": turn["conversation_id"]}

        assert turn["answer"] == exchange.answer
        assert_agrees(fold(events), turn)
        results = [message.text for message in exchange.rounds if message.role == "tool"]
        assert [step["observation"] for step in turn["steps"]] == [
            result[:4_000] for result in results
        ]
        history = model.calls[first_call].request.messages[1:]
        assert [(message.role, message.text) for message in history] == [
            *said,
            ("user", exchange.question),
        ]
        said += [("user", exchange.question), ("assistant", exchange.answer)]
    stored = client.messages(conversation["conversation_id"])
    assert [(message["role"], message["content"]) for message in stored] == said


def test_conversations_in_six_languages(world: Product, model: ScriptedModel) -> None:
    chats = load_multilingual_chats()
    assert {chat.language for chat in chats} == {"en", "de", "fr", "ru", "ja", "zh"}
    with world.client() as client:
        for chat in chats:
            replay(client, model, chat)
    assert model.total_usage.prompt_tokens > 0


def test_tool_trajectories(world: Product, model: ScriptedModel) -> None:
    with world.client() as client:
        for chat in load_tool_trajectories():
            replay(client, model, chat)


def test_usage_is_what_the_model_server_counted(world: Product, model: ScriptedModel) -> None:
    (chat, *_) = load_tool_trajectories()
    exchange = next(item for item in chat.exchanges if item.rounds)
    script(model, exchange)
    with world.client() as client:
        turn = client.post_turn(exchange.question, tools=list(TOOLS))
        turn = client.get_turn(turn["id"], wait_s=30)
    counted = model.total_usage
    assert turn["usage"]["input_tokens"] == counted.prompt_tokens
    assert turn["usage"]["output_tokens"] == counted.completion_tokens
    assert turn["usage"]["cached_tokens"] == counted.cached_tokens
