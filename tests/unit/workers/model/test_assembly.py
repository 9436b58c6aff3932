from dataclasses import replace

import pytest

from shared.errors import ModelStreamError
from tests.unit.workers.model.requests import ADD, REQUEST
from workers.context.estimate import estimate_messages, estimate_tokens, estimate_tools
from workers.context.messages import ToolCall
from workers.model.assembly import Assembly
from workers.model.values import ModelEvent, ModelResponse, TextDelta, ToolCallDelta, Usage

Chunk = dict[str, object]
USAGE: Chunk = {"prompt_tokens": 10, "completion_tokens": 2}
ROLE: Chunk = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}


def delta(finish_reason: str | None = None, **fields: object) -> Chunk:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


def call(name: str | None, arguments: str, call_id: str | None = None) -> Chunk:
    function = {"name": name, "arguments": arguments}
    return delta(tool_calls=[{"index": 0, "id": call_id, "function": function}])


def read(*chunks: Chunk) -> list[ModelEvent]:
    assembly = Assembly(REQUEST)
    events = [event for chunk in chunks for event in assembly.feed(chunk)]
    return events + assembly.finish()


def response(*chunks: Chunk) -> ModelResponse:
    last = read(*chunks)[-1]
    assert isinstance(last, ModelResponse)
    return last


def test_text_comes_piece_by_piece_and_then_whole() -> None:
    events = read(
        {"choices": [], "prompt_filter_results": []},
        ROLE,
        delta(content="Hello"),
        delta(content=" there"),
        delta("stop"),
        {"choices": [], "usage": USAGE},
    )
    whole = ModelResponse(
        text="Hello there",
        tool_calls=(),
        finish_reason="stop",
        usage=Usage(input_tokens=10, output_tokens=2),
    )
    assert events == [TextDelta("Hello"), TextDelta(" there"), whole]


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning_is_kept_apart(key: str) -> None:
    answer = response(delta(**{key: "hm "}), delta(**{key: "so"}), delta("stop", content="yes"))
    assert (answer.reasoning, answer.text) == ("hm so", "yes")


def test_reasoning_sent_under_both_names_counts_once() -> None:
    answer = response(delta("stop", reasoning="hm", reasoning_content="hm", content="yes"))
    assert answer.reasoning == "hm"


def test_think_block_split_over_chunks_is_reasoning() -> None:
    events = read(
        *(delta(content=part) for part in ("<th", "ink>h", "m</thi", "nk>\n\nye", "s")),
        delta("stop"),
    )
    assert events[:-1] == [TextDelta("ye"), TextDelta("s")]
    assert response(delta("stop", content="<think>hm</think>")).text == ""


def test_text_held_back_comes_before_the_tool_call() -> None:
    events = read(delta(content="\n"), call("add", "{}", "a"), delta("tool_calls"))
    assert events[:-1] == [TextDelta("\n"), ToolCallDelta()]


def test_text_held_back_comes_before_the_response() -> None:
    assert read(delta(content=" <th"), delta("stop"))[:-1] == [TextDelta(" <th")]


def test_tool_calls_are_announced_once() -> None:
    events = read(
        delta(content="Let me see."),
        call("add", "", "a"),
        call(None, '{"x": 1}'),
        call("add", "{}", "b"),
        delta("tool_calls"),
    )
    *before, answer = events
    assert before == [TextDelta("Let me see."), ToolCallDelta()]
    assert isinstance(answer, ModelResponse)
    assert answer.finish_reason == "tool_calls"
    assert answer.tool_calls == (
        ToolCall(id="a", name="add", arguments='{"x": 1}'),
        ToolCall(id="b", name="add", arguments="{}"),
    )


@pytest.mark.parametrize("reason", ["length", "content_filter", "stop", "tool_calls"])
def test_finish_reason_is_passed_through(reason: str) -> None:
    assert response(delta(content="x"), delta(reason)).finish_reason == reason


def test_finish_reason_is_not_undone_by_later_chunks() -> None:
    assert response(delta("length"), delta(""), delta(None)).finish_reason == "length"


def test_usage_inside_the_last_choice_chunk() -> None:
    last = delta("stop", content="x") | {
        "usage": USAGE | {"prompt_tokens_details": {"cached_tokens": 8}}
    }
    assert response(last).usage == Usage(input_tokens=10, output_tokens=2, cached_tokens=8)


def test_running_usage_counts_as_it_last_stood() -> None:
    early = delta(content="x") | {"usage": {"prompt_tokens": 10, "completion_tokens": 1}}
    late = delta("stop") | {"usage": USAGE | {"prompt_cache_hit_tokens": 4}}
    assert response(early, late, ROLE | {"usage": None}).usage == Usage(
        input_tokens=10,
        output_tokens=2,
        cached_tokens=4,
    )


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": 0}, {"prompt_tokens": None}])
def test_usage_that_is_not_reported_is_estimated(usage: Chunk | None) -> None:
    request = replace(REQUEST, tools=(ADD,))
    assembly = Assembly(request)
    assembly.feed(delta(reasoning="hm") | {"usage": usage})
    assembly.feed(call("add", '{"x": 1}', "a"))
    assembly.feed(delta("stop", content="the answer"))
    answer = assembly.finish()[-1]
    assert isinstance(answer, ModelResponse)
    texts = ("the answer", "hm", "add", '{"x": 1}')
    assert answer.usage == Usage(
        input_tokens=estimate_messages(request.messages) + estimate_tools(request.tools),
        output_tokens=sum(estimate_tokens(text) for text in texts),
        is_estimated=True,
    )


def test_answer_sent_whole_is_read_too() -> None:
    message = {"role": "assistant", "content": "Hello", "tool_calls": None}
    answer = response({"choices": [{"message": message, "finish_reason": "stop"}], "usage": USAGE})
    assert answer.text == "Hello"


def test_character_split_over_chunks_is_whole() -> None:
    events = read(delta(content="a\ud83d"), delta(content="\ude00"), delta("stop"))
    assert events[:-1] == [TextDelta("a"), TextDelta("😀")]


@pytest.mark.parametrize("chunks", [[], [ROLE], [delta(content="half an ans")]])
def test_answer_without_finish_reason_is_broken(chunks: list[Chunk]) -> None:
    with pytest.raises(ModelStreamError, match="broke off"):
        read(*chunks)


@pytest.mark.parametrize("reason", ["error", "network_error"])
def test_answer_ended_by_the_provider_is_broken(reason: str) -> None:
    with pytest.raises(ModelStreamError, match=reason):
        read(delta(content="half"), delta(reason))


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": "x"},
        {"choices": ["x"]},
        {"choices": [{"delta": "x"}]},
        {"choices": [{"delta": {"content": 1}}]},
        {"choices": [{"delta": {"content": ["x"]}}]},
        {"choices": [{"delta": {"reasoning": {"a": 1}}}]},
        {"choices": [{"delta": {"tool_calls": {"0": 1}}}]},
        {"choices": [{"delta": {"tool_calls": ["x"]}}]},
        {"choices": [{"delta": {"tool_calls": [{"function": "x"}]}}]},
        {"choices": [{"finish_reason": 1}]},
        {"usage": 3},
        {"usage": {"prompt_tokens": 1, "prompt_tokens_details": 3}},
    ],
)
def test_unexpected_shapes_cannot_be_read(chunk: Chunk) -> None:
    with pytest.raises(ModelStreamError, match="could not be read"):
        Assembly(REQUEST).feed(chunk)


@pytest.mark.parametrize(
    "chunk",
    [
        {},
        {"choices": None},
        {"choices": [{}]},
        {"choices": [{"delta": None}]},
        {"choices": [{"delta": {"content": None, "tool_calls": None, "reasoning": None}}]},
        {"choices": [{"delta": {"tool_calls": []}}], "unknown": [1]},
    ],
)
def test_empty_chunks_say_nothing(chunk: Chunk) -> None:
    assert Assembly(REQUEST).feed(chunk) == []


def test_refusal_is_the_answer() -> None:
    """Sent in place of the content by some providers."""
    pieces = [delta(refusal="I cannot "), delta(refusal="help.", content=None), delta("stop")]
    assert response(*pieces).text == "I cannot help."
