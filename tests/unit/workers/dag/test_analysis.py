"""Judging results."""

import pytest

from shared.errors import ModelUnavailableError
from tests.unit.workers.dag.scripted import Scripted
from tests.unit.workers.model.requests import TARGET
from workers.context.messages import Message
from workers.dag.analysis import FAILED, RESULT_CHARS, Analysis, analyze

GOAL = Message(role="user", content="Compare the two mills.", pinned=True, origin="query")


async def judge(answer: dict[str, object] | Exception) -> Analysis:
    return await analyze(Scripted(answer), TARGET, GOAL, {"one": "It is red."})


@pytest.mark.parametrize(
    ("written", "achieved"),
    [(True, True), ("false", False), ("true", True), (0, False), ("no", False)],
)
async def test_achieved_may_be_a_word(written: object, *, achieved: bool) -> None:
    assert (await judge({"achieved": written})).achieved is achieved


@pytest.mark.parametrize(
    ("written", "confidence"),
    [
        (0.5, 0.5),
        (7, 1.0),
        (-1, 0.0),
        ("0.9", 0.9),
        ("85%", 0.85),
        ("high", 0.0),
        (None, 0.0),
        ("nan", 0.0),
        ("inf", 1.0),
    ],
)
async def test_confidence_is_from_0_to_1(written: object, confidence: float) -> None:
    found = await judge({"achieved": True, "confidence": written})
    assert found.confidence == pytest.approx(confidence)


async def test_texts_may_be_null() -> None:
    found = await judge({"achieved": True, "final_answer": None, "reasoning": None})
    assert (found.final_answer, found.reasoning) == ("", "")


async def test_failed_call_is_not_achieved() -> None:
    assert await judge(ModelUnavailableError()) == FAILED
    assert (FAILED.achieved, FAILED.confidence) == (False, 0.0)


async def test_each_result_is_shown_cut() -> None:
    model = Scripted({"achieved": True})
    await analyze(model, TARGET, GOAL, {"one": "x" * 20_000, "two": "It is blue."})
    shown = model.requests[0].messages[-1].text
    assert "Step two:\nIt is blue." in shown
    assert "[Truncated]" in shown
    assert len(shown) < RESULT_CHARS + 100
