from dataclasses import replace

from tests.unit.workers.context.histories import user
from workers.context.messages import Message
from workers.context.pins import unpin_oldest

QUERY = replace(user("q" * 400, pinned=True), origin="query")


def injection(letter: str) -> Message:
    return Message(role="user", content=letter * 400, pinned=True, origin="injection")


def pins(messages: tuple[Message, ...]) -> list[bool]:
    return [message.pinned for message in messages]


def test_within_the_limit_all_keep_their_pin() -> None:
    messages = (QUERY, injection("a"), injection("b"))
    assert unpin_oldest(messages, 312) == messages


def test_oldest_injections_lose_it_first() -> None:
    messages = (QUERY, injection("a"), injection("b"), injection("c"))
    assert pins(unpin_oldest(messages, 312)) == [True, False, True, True]
    assert pins(unpin_oldest(messages, 311)) == [True, False, False, True]


def test_query_and_newest_injection_keep_it() -> None:
    messages = (QUERY, injection("a"), injection("b"))
    assert pins(unpin_oldest(messages, 0)) == [True, False, True]
    assert pins(unpin_oldest((QUERY,), 0)) == [True]


def test_given_messages_are_not_changed() -> None:
    messages = (QUERY, injection("a"), injection("b"))
    unpin_oldest(messages, 0)
    assert pins(messages) == [True, True, True]
