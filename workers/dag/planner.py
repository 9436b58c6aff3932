"""Having a plan made for a goal: asked for in a form, and once more if it cannot be run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from workers.context.messages import Message
from workers.dag.plan import MAX_STEPS, Plan, PlanAnswer, PlanRefusedError, read_plan
from workers.model.structured import Call, Form, structured_llm_call
from workers.model.values import ModelRequest, ModelTarget
from workers.react.offered_tools import describe
from workers.tools.registry import ToolRegistry

INSTRUCTIONS = f"""\
Plan how to do what the user wants, in 2 to {MAX_STEPS} steps. Steps are worked on by different
assistants, at the same time where they do not depend on each other. An assistant sees the user's
goal, its own task and the results of the steps that it depends on; nothing else. So:
- Put into a task all that it takes, in the language of the user.
- Let a step depend only on steps whose results it needs.
- Leave out a step that only repeats or sums up: the answer is written from the results anyway."""
TOOLS = "Assistants can use these tools:"
FINISHED = """\
These steps are finished already. Take a result that still serves with a step of the form \
{"id": "…", "reuse": "<id of the finished step>"}; plan anew only what is missing or went wrong:"""
REFUSED = "That plan cannot be run: {reason}. Write it again."

PLAN = Form(name="write_plan", description="Write the plan.", model=PlanAnswer)


async def make_plan(
    call: Call,
    target: ModelTarget,
    goal: Message,
    tools: ToolRegistry,
    finished: Mapping[str, str] | None = None,
) -> Plan:
    """Return a plan for a goal.

    goal: what the user wants, with what it takes to understand it.
    finished: results of the steps of earlier rounds, by id; they can be reused.
    Raises PlanRefusedError if two plans cannot be run, ModelError if there is none.
    """
    request = ModelRequest(
        target=target,
        messages=(_instructions(tools, finished or {}), goal),
        purpose="plan",
    )
    answer = await structured_llm_call(call, request, PLAN)
    try:
        return read_plan(answer.value, finished or ())
    except PlanRefusedError as refused:
        again = (*request.messages, *_complaint(answer.value, str(refused)))
    answer = await structured_llm_call(call, replace(request, messages=again), PLAN)
    return read_plan(answer.value, finished or ())


def _instructions(tools: ToolRegistry, finished: Mapping[str, str]) -> Message:
    parts = [INSTRUCTIONS]
    if tools.names:
        parts.append(f"{TOOLS}\n{describe(tools)}")
    if finished:
        results = "\n".join(f"- {step_id}: {result}" for step_id, result in finished.items())
        parts.append(f"{FINISHED}\n{results}")
    return Message(role="system", content="\n\n".join(parts), origin="instructions")


def _complaint(answer: PlanAnswer, reason: str) -> Sequence[Message]:
    return (
        Message(role="assistant", content=answer.model_dump_json(exclude_defaults=True)),
        Message(role="user", content=REFUSED.format(reason=reason), pinned=True),
    )
