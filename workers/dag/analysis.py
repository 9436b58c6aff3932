"""Judging what the steps of a plan have come to."""

import math
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field, field_validator

from shared.errors import ModelError
from workers.context.cuts import cut_end
from workers.context.messages import Message
from workers.model.structured import Call, Form, structured_llm_call
from workers.model.values import ModelRequest, ModelTarget

# Characters of each result that are shown to whoever judges.
RESULT_CHARS = 10_000
PERCENT = 100.0

INSTRUCTIONS = """\
Several assistants have worked on what a user wants. Judge by their results whether it is achieved,
how sure you are of that, and what the user is to be answered if it is. Steps that failed or were
left out count only as far as their results are missing. Answer in the language of the user."""


class Analysis(BaseModel):
    """What has been achieved."""

    achieved: bool = Field(description="whether the results are what the user wants")
    confidence: float = Field(default=0.0, description="how sure that is: 0 to 1")
    final_answer: str = Field(default="", description="the answer to the user, if achieved")
    reasoning: str = Field(default="", description="why, and what is missing")

    @field_validator("confidence", mode="before")
    @classmethod
    def _clamp(cls, value: Any) -> float:  # noqa: ANN401 - whatever a model wrote
        """Take percents for what they are, and what is no number for 0."""
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            return 0.0
        if math.isnan(number):
            return 0.0
        return min(max(number / PERCENT if text.endswith("%") else number, 0.0), 1.0)

    @field_validator("final_answer", "reasoning", mode="before")
    @classmethod
    def _say_nothing(cls, value: object) -> object:
        return "" if value is None else value


FAILED = Analysis(achieved=False, reasoning="The results could not be judged.")
ANALYSIS = Form(name="judge_results", description="Judge the results.", model=Analysis)


async def analyze(
    call: Call,
    target: ModelTarget,
    goal: Message,
    results: Mapping[str, str],
) -> Analysis:
    """Return what results have come to; not achieved, with no confidence, if nobody can judge.

    goal: what the user wants. results: texts by step, what became of a failed one too.
    """
    shown = "\n\n".join(
        f"Step {step_id}:\n{cut_end(result, RESULT_CHARS)}" for step_id, result in results.items()
    )
    request = ModelRequest(
        target=target,
        messages=(
            Message(role="system", content=INSTRUCTIONS, origin="instructions"),
            goal,
            Message(role="user", content=f"The results:\n\n{shown}"),
        ),
        purpose="analysis",
    )
    try:
        return (await structured_llm_call(call, request, ANALYSIS, default=FAILED)).value
    except ModelError:
        return FAILED
