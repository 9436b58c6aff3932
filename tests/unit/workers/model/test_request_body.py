from dataclasses import replace

import orjson

from tests.unit.workers.model.requests import ADD, REQUEST
from workers.context.messages import ImagePart, Message, TextPart
from workers.model.request_body import encode_body


def test_body_without_tools_and_limit() -> None:
    assert orjson.loads(encode_body(REQUEST)) == {
        "model": "model-1",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Grüße 😀"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_tools_and_limit_are_sent_when_given() -> None:
    body = orjson.loads(encode_body(replace(REQUEST, tools=(ADD,), max_tokens=5)))
    assert body["tools"] == [ADD.to_wire()]
    assert body["max_tokens"] == 5


def test_same_request_gives_the_same_bytes() -> None:
    request = replace(REQUEST, tools=(ADD,))
    assert encode_body(request) == encode_body(replace(request))


def test_longer_conversation_begins_with_the_bytes_of_the_shorter() -> None:
    shorter = encode_body(replace(REQUEST, messages=REQUEST.messages[:1], tools=(ADD,)))
    longer = encode_body(replace(REQUEST, tools=(ADD,)))
    prefix = shorter[: shorter.index(b'],"stream"')]
    assert longer.startswith(prefix)


def test_what_the_provider_refused_is_left_out_or_said_otherwise() -> None:
    request = replace(REQUEST, max_tokens=5, response_format="json_object")
    body = orjson.loads(encode_body(request, {"max_tokens", "stream_options", "response_format"}))
    assert set(body) == {"model", "messages", "max_completion_tokens", "stream"}
    assert body["max_completion_tokens"] == 5


def without_system(*messages: Message) -> list[tuple[str, object]]:
    body = orjson.loads(encode_body(replace(REQUEST, messages=messages), {"system"}))
    return [(message["role"], message["content"]) for message in body["messages"]]


def test_system_messages_are_said_in_user_messages() -> None:
    system = Message(role="system", content="Be brief.")
    answer = Message(role="assistant", content="Hi.")
    user = Message(role="user", content="Hello.")
    assert without_system(system, user, answer, user, system) == [
        ("user", "Be brief.\n\nHello."),
        ("assistant", "Hi."),
        ("user", "Hello."),
        ("user", "Be brief."),
    ]
    assert without_system(system, system, answer) == [
        ("user", "Be brief.\n\nBe brief."),
        ("assistant", "Hi."),
    ]


def test_system_message_before_an_image() -> None:
    image = Message(
        role="user", content=(TextPart(text="What is it?"), ImagePart(url="data:image/png;base64,"))
    )
    assert without_system(Message(role="system", content="Be brief."), image) == [
        (
            "user",
            [
                {"type": "text", "text": "Be brief."},
                {"type": "text", "text": "What is it?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}},
            ],
        ),
    ]
