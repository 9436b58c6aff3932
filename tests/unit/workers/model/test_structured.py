"""Answers in a form, from models that can do this and that, and from answers that nearly fit."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from shared.errors import (
    ModelUnavailableError,
    StructuredAnswerError,
    UnsupportedParameterError,
)
from tests.unit.workers.model.requests import REQUEST, TARGET
from workers.context.messages import ToolCall
from workers.model.structured import Form, Level, find_fields, structured_llm_call
from workers.model.values import Abilities, ModelRequest, ModelResponse, Usage


class Verdict(BaseModel):
    """How a goal was met."""

    achieved: bool
    confidence: float = Field(ge=0, le=1)
    reasoning: str = ""
    steps: list[str] = []
    kind: Literal["short", "long"] = "short"

    @field_validator("reasoning")
    @classmethod
    def _must_not_curse(cls, value: str) -> str:
        if "damn" in value:
            raise ValueError("no curses")
        return value


FORM = Form(name="judge", description="Judge it.", model=Verdict)
GOOD = Verdict(achieved=True, confidence=0.5)
GOOD_JSON = '{"achieved": true, "confidence": 0.5}'
USAGE = Usage(input_tokens=10, output_tokens=5, cached_tokens=2)


def say(text: str, *, finish_reason: str = "stop") -> ModelResponse:
    return ModelResponse(text=text, tool_calls=(), finish_reason=finish_reason, usage=USAGE)


def use(arguments: str) -> ModelResponse:
    call = ToolCall(id="call_1", name="judge", arguments=arguments)
    return ModelResponse(text="", tool_calls=(call,), finish_reason="tool_calls", usage=USAGE)


class Model:
    """Gives one answer after the other, and keeps the requests."""

    def __init__(self, *answers: ModelResponse | Exception) -> None:
        self.requests: list[ModelRequest] = []
        self._answers = list(answers)

    async def __call__(self, request: ModelRequest) -> ModelResponse:
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def able(*, tool_call: bool = True, json_mode: bool = True) -> ModelRequest:
    abilities = Abilities(tool_call=tool_call, json_mode=json_mode)
    return replace(REQUEST, target=replace(TARGET, abilities=abilities), purpose="analysis")


async def test_tool_is_forced_and_one_call_is_enough() -> None:
    model = Model(use(GOOD_JSON))

    answer = await structured_llm_call(model, able(), FORM)

    assert (answer.value, answer.level, answer.calls) == (GOOD, "tool", 1)
    assert answer.usage == USAGE
    assert answer.raw == {"achieved": True, "confidence": 0.5}
    request = model.requests[0]
    assert request.tool_choice == "judge"
    assert [tool.parameters for tool in request.tools] == [Verdict.model_json_schema()]
    assert request.purpose == "analysis"


async def test_empty_tool_answer_goes_on_in_json_mode() -> None:
    model = Model(say(""), say(GOOD_JSON))

    answer = await structured_llm_call(model, able(), FORM)

    assert (answer.value, answer.level, answer.calls) == (GOOD, "json", 2)
    request = model.requests[1]
    assert (request.tools, request.tool_choice) == ((), None)
    assert request.response_format == "json_object"
    assert (
        json.dumps(Verdict.model_json_schema(), separators=(",", ":")) in request.messages[-1].text
    )


async def test_provider_without_tools_is_asked_in_json_mode() -> None:
    model = Model(UnsupportedParameterError("no", "tools"), say(GOOD_JSON))
    answer = await structured_llm_call(model, able(), FORM)
    assert (answer.level, answer.calls) == ("json", 1)


@pytest.mark.parametrize(
    ("tool_call", "json_mode", "level", "formats"),
    [
        (False, True, "json", ["json_object"]),
        (False, False, "text", [None]),
    ],
)
async def test_levels_a_model_lacks_are_left_out(
    level: Level, formats: list[str | None], *, tool_call: bool, json_mode: bool
) -> None:
    model = Model(say(GOOD_JSON))
    answer = await structured_llm_call(model, able(tool_call=tool_call, json_mode=json_mode), FORM)
    assert answer.level == level
    assert [request.response_format for request in model.requests] == formats
    assert model.requests[0].tools == ()


async def test_wrong_answer_is_asked_for_again_with_what_is_wrong() -> None:
    model = Model(say('{"achieved": "perhaps", "confidence": 0.5}'), say(GOOD_JSON))

    answer = await structured_llm_call(model, able(tool_call=False), FORM)

    assert (answer.level, answer.calls) == ("json", 2)
    wrong, complaint = model.requests[1].messages[-2:]
    assert (wrong.role, wrong.text) == ("assistant", '{"achieved": "perhaps", "confidence": 0.5}')
    assert "achieved" in complaint.text


async def test_every_level_is_tried_and_usage_is_summed() -> None:
    model = Model(*[say("I cannot say.")] * 5)

    answer = await structured_llm_call(model, able(), FORM, default=GOOD)

    assert (answer.value, answer.level, answer.raw) == (GOOD, "default", {})
    assert answer.calls == len(model.requests) == 5
    assert answer.usage == Usage(input_tokens=50, output_tokens=25, cached_tokens=10)
    formats = [request.response_format for request in model.requests]
    assert formats == [None, "json_object", "json_object", None, None]


async def test_without_a_default_it_is_an_error() -> None:
    with pytest.raises(StructuredAnswerError, match="judge"):
        await structured_llm_call(Model(*[say("no")] * 5), able(), FORM)


async def test_failed_call_is_the_callers() -> None:
    with pytest.raises(ModelUnavailableError):
        await structured_llm_call(Model(ModelUnavailableError()), able(), FORM, default=GOOD)


async def test_validators_of_the_form_send_an_answer_back() -> None:
    model = Model(use('{"achieved": true, "confidence": 0.5, "reasoning": "damn"}'), say(GOOD_JSON))
    answer = await structured_llm_call(model, able(), FORM)
    assert (answer.value, answer.level) == (GOOD, "json")


async def test_answer_that_was_cut_off_is_not_guessed() -> None:
    cut = say('{"achieved": true, "confidence": 0.5, "steps": ["a", "b', finish_reason="length")
    model = Model(cut, say(GOOD_JSON))
    answer = await structured_llm_call(model, able(tool_call=False), FORM)
    assert (answer.value, answer.calls) == (GOOD, 2)


async def test_first_object_that_fits_is_taken() -> None:
    model = Model(say(f'{{"example": 1}} and so {GOOD_JSON}'))
    answer = await structured_llm_call(model, able(tool_call=False), FORM)
    assert (answer.value, answer.calls) == (GOOD, 1)


# What models write, each with what it says. All are read without another call.
GOLDEN: Sequence[tuple[str, Verdict]] = [
    (GOOD_JSON, GOOD),
    (f"```json\n{GOOD_JSON}\n```", GOOD),
    (f"```\n{GOOD_JSON}\n```", GOOD),
    (f"Sure! Here is the JSON:\n\n```json\n{GOOD_JSON}\n```\nLet me know.", GOOD),
    (f"{GOOD_JSON} I hope that this helps.", GOOD),
    (f"My verdict: {GOOD_JSON}", GOOD),
    (f"\ufeff{GOOD_JSON}", GOOD),
    (f"<answer>{GOOD_JSON}</answer>", GOOD),
    (f"The set {{x}} is empty. {GOOD_JSON}", GOOD),
    ('{"achieved": true, "confidence": 0.5,}', GOOD),
    ('{"achieved": true "confidence": 0.5}', GOOD),
    ("{'achieved': true, 'confidence': 0.5}", GOOD),
    ("{'achieved': True, 'confidence': 0.5}", GOOD),
    ("{achieved: true, confidence: 0.5}", GOOD),
    ("{“achieved”: true, “confidence”: 0.5}", GOOD),
    ('{"achieved": true, "confidence": 0.5', GOOD),
    ('{"achieved": true, "confidence": 0.5}}}', GOOD),
    ('{"achieved": true, // it was\n "confidence": 0.5}', GOOD),
    ('{"achieved": "true", "confidence": "0.5"}', GOOD),
    ('{"achieved": true, "confidence": .5}', GOOD),
    ('{"achieved": true, "confidence": 0.5, "extra": [1, 2]}', GOOD),
    (f"[{GOOD_JSON}]", GOOD),
    (json.dumps(GOOD_JSON), GOOD),
    (f'{GOOD_JSON}\n{{"achieved": false, "confidence": 0.9}}', GOOD),
    ('{"achieved": "false", "confidence": 0.5}', Verdict(achieved=False, confidence=0.5)),
    (
        '{"achieved": true, "confidence": 0.5, "reasoning": "first\nsecond"}',
        Verdict(achieved=True, confidence=0.5, reasoning="first\nsecond"),
    ),
    (
        '{"achieved": true, "confidence": 0.5, "reasoning": "she said "yes" twice"}',
        Verdict(achieved=True, confidence=0.5, reasoning='she said "yes" twice'),
    ),
    (
        '{"achieved": true, "confidence": 0.5, "steps": ["a", "b",]}',
        Verdict(achieved=True, confidence=0.5, steps=["a", "b"]),
    ),
]


@pytest.mark.parametrize("level", ["tool", "json", "text"])
@pytest.mark.parametrize(("text", "verdict"), GOLDEN)
async def test_nearly_right_answers_cost_no_other_call(
    text: str, verdict: Verdict, level: Level
) -> None:
    model = Model(use(text) if level == "tool" else say(text))
    request = able(tool_call=level == "tool", json_mode=level != "text")

    answer = await structured_llm_call(model, request, FORM)

    assert (answer.value, answer.level, answer.calls) == (verdict, level, 1)


# What says it in words: read at the last level only.
IN_WORDS: Sequence[tuple[str, Verdict]] = [
    ("achieved: true\nconfidence: 0.5", GOOD),
    ("**Achieved:** true\n**Confidence:** 0.5", GOOD),
    ("- confidence = 0.5,\n- achieved = yes", GOOD),
    (
        'achieved: true, confidence: 0.5, reasoning: "it says "done" at the end"',
        Verdict(achieved=True, confidence=0.5, reasoning='it says "done" at the end'),
    ),
    (
        "reasoning: all is well; achieved: no; confidence: 1",
        Verdict(achieved=False, confidence=1.0, reasoning="all is well"),
    ),
]


@pytest.mark.parametrize(("text", "verdict"), IN_WORDS)
async def test_words_are_read_at_the_last_level_only(text: str, verdict: Verdict) -> None:
    model = Model(*[say(text)] * 4)
    answer = await structured_llm_call(model, able(), FORM)
    assert (answer.value, answer.level, answer.calls) == (verdict, "text", 4)


def test_fields_are_found_whatever_their_order() -> None:
    text = 'Kind: "long", steps: none. My confidence: 0.25'
    assert find_fields(text, Verdict) == {
        "kind": "long",
        "steps": "none. My",
        "confidence": "0.25",
    }
