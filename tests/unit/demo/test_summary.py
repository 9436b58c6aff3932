"""The demo model's summaries, asked for as the product asks."""

import pytest

from demo.protocol import parse_request
from demo.script import respond
from tests.unit.workers.context.histories import a_round, assistant, user
from workers.context.counter import ESTIMATE
from workers.context.messages import Message
from workers.context.summarizer import Summarizer
from workers.context.summary import summary_message
from workers.model.request_body import encode_body
from workers.model.values import ModelRequest, ModelResponse, ModelTarget, Usage

TARGET = ModelTarget(
    name="turnmill-demo",
    base_url="http://demo",
    api_key="k",
    context_size=8_000,
    max_output_tokens=1_000,
)


async def call(request: ModelRequest) -> ModelResponse:
    reply = respond(parse_request(encode_body(request)))
    return ModelResponse(
        text="".join(reply.text_pieces),
        tool_calls=(),
        finish_reason="stop",
        usage=Usage(input_tokens=1, output_tokens=1),
    )


async def summarize(*messages: Message) -> str:
    summarizer = Summarizer(call, lambda: (TARGET, ESTIMATE))
    return await summarizer.summarize(messages, hint="general", room_tokens=1_000)


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("Where is the mill? I have looked everywhere. " * 5, "User: Where is the mill?"),
        ("水車はどこですか。探しました。" * 9, "User: 水車はどこですか。"),
    ],
)
async def test_first_sentences_are_kept(question: str, first: str) -> None:
    text = await summarize(user(question), assistant("By the river. It turns. " * 9))
    assert text.splitlines() == [first, "Assistant: By the river."]


async def test_earlier_summary_and_tool_results_are_part_of_it() -> None:
    earlier = summary_message("User: Where is the mill?\nAssistant: By the river.")
    text = await summarize(earlier, user("How old is it? " * 20), *a_round("300 years. " * 20))
    assert text.splitlines()[:3] == [
        "User: Where is the mill?",
        "Assistant: By the river.",
        "User: How old is it?",
    ]
    assert "Tool result: 300 years." in text


async def test_summary_is_shorter_than_what_it_replaces() -> None:
    talk = [message for n in range(60) for message in (user(f"Question {n}?"), assistant("Yes."))]
    text = await summarize(*talk)
    assert len(text) < sum(len(message.text) for message in talk) / 2
    assert text.endswith("User: Question 59?\nAssistant: Yes.")
