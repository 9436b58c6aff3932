"""When a loop is told something, and that another attempt is told the same."""

import json

import pytest

from tests.unit.workers.react.test_transcript import Recorder, answer
from workers.context.messages import ToolCall
from workers.react.notes import MARK, LoopLimits, checklist, due_notes, reformat
from workers.react.transcript import Note

LIMITS = LoopLimits(max_iterations=50, reflection_interval=6, cycle_threshold=3, check_min_tools=3)
QUERY = "How many mills are there?"


def work(recorder: Recorder, *arguments: dict[str, object], name: str = "look") -> None:
    """Have a round of calls made and answered."""
    asked = recorder.respond(
        answer(
            "",
            *(
                ToolCall(id=f"call_{at}", name=name, arguments=json.dumps(item))
                for at, item in enumerate(arguments)
            ),
        )
    )
    for call in asked:
        recorder.finish(call, "seen")


def kinds(recorder: Recorder, limits: LoopLimits = LIMITS) -> list[str]:
    return [note.kind for note in due_notes(recorder.transcript, limits, QUERY)]


def take(recorder: Recorder, note: Note) -> None:
    recorder.entries.append(recorder.transcript.note_entry(note))
    recorder.transcript.add_note(note)


def test_look_back_comes_after_every_six_calls() -> None:
    recorder = Recorder()
    due: list[int] = []
    for number in range(13):
        work(recorder, {"n": number})
        for note in due_notes(recorder.transcript, LIMITS, QUERY):
            assert note.kind == "reflection"
            assert QUERY in note.text
            assert note.text.startswith(MARK)
            due.append(number + 1)
            take(recorder, note)
    assert due == [6, 12]


def test_no_look_back_before_the_last_iteration() -> None:
    recorder = Recorder()
    for number in range(6):
        work(recorder, {"n": number})
    limits = LoopLimits(
        max_iterations=7, reflection_interval=6, cycle_threshold=0, check_min_tools=0
    )
    assert kinds(recorder, limits) == []


def test_third_identical_call_is_warned_of_whatever_the_order_of_its_arguments() -> None:
    recorder = Recorder()
    work(recorder, {"a": 1, "b": 2})
    work(recorder, {"b": 2, "a": 1})
    assert kinds(recorder) == []
    work(recorder, {"a": 1, "b": 2})

    (note,) = due_notes(recorder.transcript, LIMITS, QUERY)

    assert note.kind == "cycle"
    assert "look was called 3 times" in note.text
    take(recorder, note)
    assert kinds(recorder) == []
    work(recorder, {"a": 1, "b": 2})
    assert kinds(recorder) == []


def test_calls_in_one_response_count_too() -> None:
    recorder = Recorder()
    work(recorder, {}, {}, {})
    assert kinds(recorder) == ["cycle"]


def test_other_arguments_and_other_tools_are_no_cycle() -> None:
    recorder = Recorder()
    work(recorder, {"a": 1}, {"a": 2}, {"a": 3})
    work(recorder, {"a": 1}, name="listen")
    work(recorder, {"a": 1}, name="smell")
    assert kinds(recorder) == []


@pytest.mark.parametrize(("calls", "is_checked"), [(0, False), (2, False), (3, True)])
def test_answer_after_three_tools_is_checked_once(calls: int, *, is_checked: bool) -> None:
    recorder = Recorder()
    for number in range(calls):
        work(recorder, {"n": number})
    note = checklist(recorder.transcript, LIMITS, QUERY)
    assert (note is not None) == is_checked
    if note is not None:
        take(recorder, note)
        assert checklist(recorder.transcript, LIMITS, QUERY) is None


def test_right_form_is_asked_for_once_in_a_row() -> None:
    recorder = Recorder()
    recorder.respond(answer("not JSON"))
    note = reformat(recorder.transcript, LIMITS)
    assert note is not None
    take(recorder, note)
    assert [message.text for message in recorder.transcript.messages] == ["not JSON", note.text]

    assert reformat(recorder.transcript, LIMITS) is None
    work(recorder, {"n": 1})
    assert reformat(recorder.transcript, LIMITS) is not None


def test_zero_turns_all_off() -> None:
    recorder = Recorder()
    for _ in range(12):
        work(recorder, {})
    off = LoopLimits(max_iterations=50, reflection_interval=0, cycle_threshold=0, check_min_tools=0)
    assert kinds(recorder, off) == []
    assert checklist(recorder.transcript, off, QUERY) is None


def test_another_attempt_is_told_the_same() -> None:
    recorder = Recorder()
    for _ in range(6):
        work(recorder, {})
    assert kinds(recorder.__class__()) == []
    for note in list(due_notes(recorder.transcript, LIMITS, QUERY)):
        take(recorder, note)
    recorder.respond(answer("six"))
    check = checklist(recorder.transcript, LIMITS, QUERY)
    assert check is not None
    take(recorder, check)

    folded = recorder.folded()

    assert folded == recorder.transcript
    assert list(due_notes(folded, LIMITS, QUERY)) == []
    assert checklist(folded, LIMITS, QUERY) is None
