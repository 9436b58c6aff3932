"""Requests in JSON mode, and what is made of the answers."""

import json
from dataclasses import replace

import pytest

from tests.unit.workers.model.requests import ADD, REQUEST, TARGET
from workers.context.messages import Message, StoredImage, ToolCall
from workers.model.json_mode import INSTRUCTIONS, read_response, to_json_mode
from workers.model.values import Abilities, ModelRequest, ModelResponse, Usage

CALL = ToolCall(id="call_1", name="add", arguments='{"a": 1, "b": 2}')
ROUND = (
    Message(role="assistant", content="Let me add.", tool_calls=(CALL,)),
    Message(role="tool", content="3", tool_call_id="call_1"),
)


def response(text: str, *, finish_reason: str = "stop") -> ModelResponse:
    usage = Usage(input_tokens=1, output_tokens=1)
    return ModelResponse(text=text, tool_calls=(), finish_reason=finish_reason, usage=usage)


def request(*messages: Message, json_mode: bool = True) -> ModelRequest:
    target = replace(TARGET, abilities=Abilities(tool_call=False, json_mode=json_mode))
    return replace(REQUEST, target=target, messages=messages, tools=(ADD,))


def test_tools_are_described_after_the_instructions() -> None:
    rewritten = to_json_mode(request(*REQUEST.messages))
    system, user = rewritten.messages
    assert system.text.startswith(f"Be brief.\n\n{INSTRUCTIONS}")
    assert "- add: Add numbers." in system.text
    assert json.dumps(ADD.parameters, separators=(",", ":")) in system.text
    assert user is REQUEST.messages[1]
    assert rewritten.tools == ()
    assert rewritten.response_format == "json_object"


def test_without_instructions_there_are_some() -> None:
    first, _ = to_json_mode(request(Message(role="user", content="Hi"))).messages
    assert first.role == "system"


def test_response_format_is_left_out_where_it_is_not_known() -> None:
    assert to_json_mode(request(json_mode=False)).response_format is None


def test_round_becomes_an_action_and_an_observation() -> None:
    rewritten = to_json_mode(request(*REQUEST.messages, *ROUND))
    action, observation = rewritten.messages[2:]
    assert (action.role, action.tool_calls) == ("assistant", ())
    assert json.loads(action.text) == {
        "type": "tool_call",
        "reasoning": "Let me add.",
        "tool_name": "add",
        "tool_args": {"a": 1, "b": 2},
    }
    assert (observation.role, observation.text) == ("user", "Observation: 3")
    assert observation.tool_call_id is None


def test_written_action_is_read_back_as_the_call() -> None:
    rewritten = to_json_mode(request(*ROUND))
    read = read_response(response(rewritten.messages[1].text))
    (call,) = read.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("add", {"a": 1, "b": 2})
    assert read.reasoning == "Let me add."


def test_images_stay() -> None:
    image = StoredImage(file_id="file_1", mime_type="image/png")  # type: ignore[arg-type]
    message = Message(role="user", content=(image,))
    assert to_json_mode(request(message)).messages[1] is message


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "tool_call", "tool_name": "add", "tool_args": {"a": 1}}',
        '```json\n{"type": "tool_call", "tool_name": "add", "tool_args": {"a": 1}}\n```',
        'Sure! {"type": "tool_call", "tool_name": "add", "tool_args": {"a": 1,},} Done.',
        "{'type': 'tool_call', 'tool_name': 'add', 'tool_args': {'a': 1}}",
        # What follows the first object was imagined.
        '{"type": "tool_call", "tool_name": "add", "tool_args": {"a": 1}} {"answer": "2"}',
    ],
)
def test_tool_call_is_read(text: str) -> None:
    read = read_response(response(text))
    (call,) = read.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("add", {"a": 1})
    assert read.text == ""
    assert not read.is_malformed


@pytest.mark.parametrize("arguments", ['"tool_args": null', '"tool_args": [1]', '"other": 1'])
def test_arguments_that_are_none_are_empty(arguments: str) -> None:
    text = f'{{"type": "tool_call", "tool_name": "add", {arguments}}}'
    assert read_response(response(text)).tool_calls[0].arguments == "{}"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"type": "final_answer", "answer": "It is 3."}', "It is 3."),
        ('{"answer": "It is 3."}', "It is 3."),
        ('{"type": "thought", "answer": "It is 3."}', "It is 3."),
        ('{"type": "final_answer", "answer": "Line one\nline two"}', "Line one\nline two"),
        ('{"type": "final_answer", "answer": "He said "hi" to me"}', 'He said "hi" to me'),
        ('{"type": "final_answer", "answer": ""}', ""),
        ('{"type": "final_answer", "answer": {"sum": 3}}', '{"sum": 3}'),
        ('{"sum": 3}', '{"sum": 3}'),
    ],
)
def test_answer_is_read(text: str, answer: str) -> None:
    read = read_response(response(text))
    assert (read.text, read.tool_calls, read.is_malformed) == (answer, (), False)


@pytest.mark.parametrize(
    "text",
    ["It is 3.", "", "{", "[1, 2]", '"text"', '{"type": "tool_call"}', "I think {x} is 3."],
)
def test_anything_else_is_malformed_and_kept(text: str) -> None:
    read = read_response(response(text))
    assert read.is_malformed
    assert (read.text, read.tool_calls) == (text, ())


def test_call_that_was_cut_off_is_not_completed_by_guessing() -> None:
    text = '{"type": "tool_call", "tool_name": "add", "tool_args": {"a": 1'
    assert read_response(response(text, finish_reason="length")).is_malformed
