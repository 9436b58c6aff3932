"""The strict parser of event streams: what it lets through, and each violation."""

import json

import pytest

from tests.helpers.sse import ProtocolViolationError, SseParser


def block(identifier: str, name: str, turn_id: str = "turn_1", **data: object) -> str:
    body = json.dumps({"turn_id": turn_id, **data}, ensure_ascii=False)
    return f"id: {identifier}\nevent: {name}\ndata: {body}\n\n"


FIRST = block("1-0", "snapshot")


def parse(text: str, after: str | None = None) -> list[str]:
    parser = SseParser(after)
    events = parser.feed(text.encode())
    parser.close()
    return [event.id for event in events]


def test_events_are_read_in_any_pieces() -> None:
    text = FIRST + block("1-1", "answer", content="Grüße, 世界 \u2028 \x85") + block("1-2", "done")
    for size in (1, 2, 7, 1000):
        raw = text.encode()
        parser = SseParser()
        events = [
            event
            for start in range(0, len(raw), size)
            for event in parser.feed(raw[start : start + size])
        ]
        parser.close()

        assert [event.event for event in events] == ["snapshot", "answer", "done"]
        assert events[1].data["content"] == "Grüße, 世界 \u2028 \x85"
        assert [event.is_terminal for event in events] == [False, False, True]


def test_comments_between_events_are_counted() -> None:
    parser = SseParser()

    events = parser.feed((": ping\n" + FIRST + ": ping\n: ping\n" + block("1-1", "done")).encode())

    assert len(events) == 2
    assert parser.comments == 3


def test_stream_may_be_taken_up_where_it_was_left() -> None:
    assert parse(block("1-5", "answer") + block("1-6", "done"), after="1-4") == ["1-5", "1-6"]


def test_snapshot_may_skip_and_opens_an_epoch() -> None:
    text = FIRST + block("1-9", "snapshot") + block("3-0", "snapshot") + block("3-1", "done")

    assert parse(text) == ["1-0", "1-9", "3-0", "3-1"]


VIOLATIONS = {
    "comment-with-blank-line": (FIRST + ": ping\n\n", "empty event"),
    "blank-line": ("\n" + FIRST, "empty event"),
    "two-blank-lines": (FIRST + "\n", "empty event"),
    "comment-inside-event": (FIRST.replace("event:", ": ping\nevent:"), "inside event"),
    "no-id": (FIRST.replace("id: 1-0\n", ""), "without"),
    "no-name": (FIRST.replace("event: snapshot\n", ""), "without"),
    "no-data": ("id: 1-0\nevent: snapshot\n\n", "without"),
    "two-data-lines": ("id: 1-0\nevent: snapshot\ndata: {}\ndata: {}\n\n", "two 'data' lines"),
    "retry-only": ("retry: 100\n\n", "not a line"),
    "unknown-field": ("what: 1\n", "not a line"),
    "no-space": ("id:1-0\n", "not a line"),
    "data-not-json": ("id: 1-0\nevent: snapshot\ndata: {\n\n", "not JSON"),
    "data-not-object": ("id: 1-0\nevent: snapshot\ndata: []\n\n", "not an object"),
    "no-turn": ("id: 1-0\nevent: snapshot\ndata: {}\n\n", "not an event of turn"),
    "another-turn": (FIRST + block("1-1", "answer", "turn_2"), "not an event of turn"),
    "id-not-of-ours": (block("7", "snapshot"), "not an id"),
    "id-repeated": (FIRST + block("1-0", "snapshot"), "does not come after"),
    "id-goes-back": (block("2-3", "snapshot") + block("1-9", "snapshot"), "does not come after"),
    "gap": (FIRST + block("1-2", "answer"), "gap"),
    "epoch-without-snapshot": (FIRST + block("2-0", "answer"), "gap"),
    "no-snapshot-first": (block("1-0", "status"), "gap"),
    "event-after-terminal": (
        FIRST + block("1-1", "done") + block("1-2", "answer"),
        "after the terminal",
    ),
    "cut-inside-event": (FIRST + "id: 1-1\nevent: done\n", "ended inside"),
    "cut-inside-line": (FIRST + "id: 1", "ended inside"),
}


@pytest.mark.parametrize(("text", "sentence"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_violation_is_found(text: str, sentence: str) -> None:
    with pytest.raises(ProtocolViolationError, match=sentence):
        parse(text)


@pytest.mark.parametrize("first", ["1-3", "1-4", "1-6"])
def test_resumed_stream_that_repeats_or_skips_is_found(first: str) -> None:
    with pytest.raises(ProtocolViolationError):
        parse(block(first, "answer"), after="1-4")
