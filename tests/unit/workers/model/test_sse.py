import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.model.sse import SseDecoder

STREAM = (
    ": hello\r\n\r\n"
    'data: {"a": "héllo 😀"}\n\n'
    "event: message\r\nid: 7\r\nretry: 10\r\ndata: one\r\ndata: two\r\n\r\n"
    "data:tight\r\r"
    ": ping\ndata: [DONE]\n\n"
).encode()
EVENTS = ['{"a": "héllo 😀"}'.encode(), b"one\ntwo", b"tight", b"[DONE]"]


def decode(*pieces: bytes) -> list[bytes]:
    decoder = SseDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events + decoder.finish()


def test_whole_stream_gives_data_of_events_only() -> None:
    assert decode(STREAM) == EVENTS


def test_stream_cut_at_every_byte_gives_the_same() -> None:
    assert decode(*(bytes([byte]) for byte in STREAM)) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_stream_cut_anywhere_gives_the_same(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in itertools.pairwise(edges)]
    assert decode(*pieces) == EVENTS


def test_event_comes_with_the_piece_that_ends_it() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: x") == []
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"\ndata: y") == [b"x"]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\r", b"\n\n"])
def test_last_event_needs_no_blank_line(end: bytes) -> None:
    assert decode(b"data: [DONE]" + end) == [b"[DONE]"]


@pytest.mark.parametrize(
    "stream",
    [b"", b"\n\n\n", b": ping\n", b": ping\n\n", b"retry: 5\n\n", b"id: 1\n: ping\n\n", b"{}\n\n"],
)
def test_what_holds_no_data_gives_no_event(stream: bytes) -> None:
    assert decode(stream) == []
