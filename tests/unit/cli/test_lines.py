import json

import pytest

from cli.lines import LONGEST_LINE_BYTES, LineSplitter, read_line


def test_chunks_become_lines_wherever_they_are_cut() -> None:
    splitter = LineSplitter()

    lines = [
        line for piece in (b"on", b"e\ntw", b"o\r\n\nthr", b"ee") for line in splitter.feed(piece)
    ]

    assert lines == ["one", "two", ""]
    assert splitter.feed(b"") == ["three"]


def test_endless_line_is_cut() -> None:
    splitter = LineSplitter()

    assert splitter.feed(b"x" * (LONGEST_LINE_BYTES + 1)) == ["x" * (LONGEST_LINE_BYTES + 1)]
    assert splitter.feed(b"") == []


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert LineSplitter().feed(b"\xff\n") == ["\ufffd"]


@pytest.mark.parametrize(
    ("level", "is_notable"),
    [("debug", False), ("info", False), ("warning", True), ("error", True), ("critical", True)],
)
def test_level_of_a_log_line_decides(level: str, *, is_notable: bool) -> None:
    entry = {"event": "lease_lost", "level": level, "timestamp": "now", "turn_id": "turn_1"}

    line = read_line(json.dumps(entry))

    assert line.text == f"{level}: lease_lost turn_id=turn_1"
    assert line.is_notable is is_notable


def test_traceback_follows_the_line() -> None:
    line = read_line('{"event": "crashed", "level": "error", "exception": "Traceback\\n  here"}')

    assert line.text == "error: crashed\nTraceback\n  here"


@pytest.mark.parametrize("raw", ["", "plain", "{broken", "[1]", '{"no": "event"}', "{}"])
def test_other_text_stays_as_it_is_and_is_not_notable(raw: str) -> None:
    line = read_line(raw)

    assert line.text == raw
    assert not line.is_notable


def test_error_of_flower_is_notable_and_its_warning_is_not() -> None:
    assert read_line("[E 261201 05:56:17 web:98] Uncaught exception").is_notable
    assert not read_line("[W 261201 05:56:17 inspector:98] Inspect method failed").is_notable
