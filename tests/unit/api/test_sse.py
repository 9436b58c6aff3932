from api.sse import PING, Frame
from shared.event_log import EventId, StoredEvent
from tests.helpers.sse import SseParser


def frame(name: str, data: str = '{"turn_id":"turn_1"}', seq: int = 0) -> Frame:
    return Frame(StoredEvent(EventId(1, seq), name, data))


def test_event_is_framed_as_three_lines_and_a_blank_one() -> None:
    assert frame("snapshot").payload == (
        b'id: 1-0\nevent: snapshot\ndata: {"turn_id":"turn_1"}\n\n'
    )


def test_bytes_are_made_once() -> None:
    shared = frame("snapshot")
    assert shared.payload is shared.payload


def test_text_beyond_ascii_is_sent_as_utf8() -> None:
    assert "žluťoučký 🐎".encode() in frame("answer", '{"content":"žluťoučký 🐎"}').payload


def test_only_terminal_events_end_a_stream() -> None:
    assert [frame(name).is_terminal for name in ("done", "failed", "cancelled")] == [True] * 3
    assert not frame("snapshot").is_terminal


def test_keep_alive_between_events_makes_no_event() -> None:
    parser = SseParser()
    events = parser.feed(frame("snapshot").payload + PING + PING + frame("done", seq=1).payload)
    assert [event.event for event in events] == ["snapshot", "done"]
    assert parser.comments == 2
