"""A transcript read back from the journal is the one that was written."""

from dataclasses import replace

from shared.ids import InjectionId, TurnId
from shared.repositories.injections import StoredInjection
from shared.repositories.journal import Entry
from shared.repositories.tool_calls import StoredToolCall
from shared.turn_state import InjectionState, ToolCallState
from tests.helpers.moments import SOME_TIME
from workers.context.messages import ToolCall
from workers.context.summary import summary_message
from workers.model.values import ModelResponse, Usage
from workers.react.transcript import Transcript, fold
from workers.runtime.progress import Progress
from workers.tools.tool import Route


def answer(text: str, *calls: ToolCall) -> ModelResponse:
    return ModelResponse(
        text=text,
        tool_calls=calls,
        finish_reason="tool_calls" if calls else "stop",
        usage=Usage(input_tokens=10, output_tokens=3, cached_tokens=4),
    )


def call(call_id: str = "call_1") -> ToolCall:
    return ToolCall(id=call_id, name="calculator", arguments='{"expression": "1+1"}')


def injected(text: str) -> StoredInjection:
    return StoredInjection(
        id=InjectionId("inj_1"),
        turn_id=TurnId("turn_1"),
        seq=1,
        content=text,
        state=InjectionState.COMMITTED,
        created_at=SOME_TIME,
        settled_at=SOME_TIME,
        idempotency_hash=None,
    )


class Recorder:
    """Keeps what a store would."""

    def __init__(self) -> None:
        self.transcript = Transcript()
        self.entries: list[Entry] = []
        self.calls: list[StoredToolCall] = []
        self.progress = Progress()

    def respond(self, response: ModelResponse) -> list[StoredToolCall]:
        self.transcript.iterations += 1
        planned = self.transcript.plan_calls(response.tool_calls, lambda _call: Route())
        self.progress.count("loop", response.usage)
        usage = self.progress.take_usage()
        self.entries.append(self.transcript.response_entry(response, "loop", usage))
        self.calls += planned
        self.transcript.add_response(response.text, planned)
        return planned

    def finish(self, asked: StoredToolCall, result: str) -> None:
        done = asked.finished(state=ToolCallState.DONE, result=result, is_error=False)
        self.calls = [done if item.id == done.id else item for item in self.calls]
        self.transcript.finish_call(done)

    def inject(self, text: str) -> None:
        self.entries.append(self.transcript.injections_entry([injected(text)]))
        self.transcript.add_injections(text)

    def folded(self) -> Transcript:
        return fold(self.entries, self.calls, Progress())


def test_results_are_appended_in_call_order_whatever_order_they_come_in() -> None:
    recorder = Recorder()
    first, second = recorder.respond(answer("", call("a"), call("b")))

    recorder.finish(second, "two")
    assert [message.role for message in recorder.transcript.messages] == ["assistant"]
    recorder.finish(first, "one")

    results = [message.text for message in recorder.transcript.messages if message.role == "tool"]
    assert results == ["one", "two"]


def test_fold_gives_the_same_transcript_after_every_entry() -> None:
    recorder = Recorder()
    (asked,) = recorder.respond(answer("let me see", call()))
    recorder.finish(asked, "2")
    recorder.inject("and 3?")
    recorder.respond(answer("the sum is 2"))
    recorder.inject("wait")

    assert recorder.folded() == recorder.transcript


def test_fold_leaves_the_calls_without_result_open() -> None:
    recorder = Recorder()
    first, second = recorder.respond(answer("", call("a"), call("b")))
    recorder.finish(first, "one")

    folded = recorder.folded()

    assert [item.id for item in folded.open_calls] == [second.id]
    folded.finish_call(second.finished(state=ToolCallState.DONE, result="2", is_error=False))
    assert [message.text for message in folded.messages if message.role == "tool"] == ["one", "2"]


def test_fold_counts_the_usage_of_finished_calls_once() -> None:
    recorder = Recorder()
    (asked,) = recorder.respond(answer("", call()))
    recorder.finish(asked, "2")
    recorder.respond(answer("done"))
    progress = Progress()

    fold(recorder.entries, recorder.calls, progress)

    usage = progress.usage()
    assert usage["input_tokens"] == 20
    assert usage["output_tokens"] == 6
    assert usage["cached_tokens"] == 8


def test_a_text_overtaken_by_an_injection_stays_in_the_loop() -> None:
    recorder = Recorder()
    recorder.respond(answer("the capital is Paris"))

    recorder.inject("I meant of Spain")

    roles = [message.role for message in recorder.transcript.messages]
    assert roles == ["assistant", "user"]
    assert recorder.transcript.messages[1].pinned
    assert recorder.transcript.draft is None


def test_ids_that_the_model_repeats_are_told_apart() -> None:
    recorder = Recorder()
    (asked,) = recorder.respond(answer("", call("same")))
    recorder.finish(asked, "1")

    repeated = recorder.respond(answer("", call("same"), call("same")))

    assert len({"same", *(item.call_id for item in repeated)}) == 3


def test_what_cannot_be_stored_is_replaced() -> None:
    recorder = Recorder()
    bad = replace(call(), arguments='{"expression": "\0\ud800"}')

    (asked,) = recorder.respond(answer("nul \0 and surrogate \ud800", bad))

    stored = str(recorder.entries[0].data["text"]) + asked.arguments
    assert "\0" not in stored
    stored.encode("utf-8")


def test_compaction_of_the_work_is_folded_with_its_cost() -> None:
    recorder = Recorder()
    for number in range(3):
        (asked,) = recorder.respond(answer("", call(f"call_{number}")))
        recorder.finish(asked, f"result {number}")
    recorder.progress.count("compaction", Usage(input_tokens=90, output_tokens=9))
    usage = recorder.progress.take_usage()
    entry = recorder.transcript.compaction_entry(
        {"method": "llm"}, replaced=[0, 1, 2, 3], summary="Two were looked up.", usage=usage
    )
    recorder.entries.append(entry)
    progress = Progress()

    folded = fold(recorder.entries, recorder.calls, progress)

    kept = recorder.transcript.messages[4:]
    assert folded.messages == [summary_message("Two were looked up."), *kept]
    assert folded.was_compacted
    assert progress.usage()["compaction_tokens"] == 99
    assert progress.usage()["input_tokens"] == 3 * 10 + 90


def test_compaction_of_the_history_leaves_the_work_alone() -> None:
    recorder = Recorder()
    (asked,) = recorder.respond(answer("", call()))
    recorder.finish(asked, "2")
    entry = recorder.transcript.compaction_entry(
        {"method": "truncate"}, replaced=[], summary="Before.", usage={}
    )
    recorder.entries.append(entry)
    progress = Progress()
    assert fold(recorder.entries, recorder.calls, progress).messages == recorder.transcript.messages
    assert "compaction" not in progress.by_purpose


def test_earlier_summary_of_the_work_is_replaced_by_the_next() -> None:
    transcript = Transcript(messages=[summary_message("one"), *Transcript().messages])
    transcript.messages += [replace(summary_message("x"), origin="loop", role="user")] * 2
    transcript.replace([0, 1], "two")
    assert [message.text for message in transcript.messages] == [
        summary_message("two").text,
        summary_message("x").text,
    ]
    transcript.replace([0], "")
    assert len(transcript.messages) == 1
