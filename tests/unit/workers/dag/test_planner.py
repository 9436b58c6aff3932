"""Having a plan made."""

import pytest

from shared.errors import ModelUnavailableError
from tests.helpers.tools import SHELVES
from tests.unit.workers.dag.scripted import Scripted
from tests.unit.workers.model.requests import TARGET
from workers.context.messages import Message
from workers.dag.plan import Plan, PlanRefusedError
from workers.dag.planner import make_plan
from workers.tools.registry import ToolRegistry

GOAL = Message(role="user", content="Compare the two mills.", pinned=True, origin="query")
TOOLS = ToolRegistry(SHELVES)
GOOD = {
    "steps": [
        {"id": "one", "task": "Look at the first."},
        {"id": "two", "task": "Compare them.", "dependencies": ["one"]},
    ]
}
CYCLE = {"steps": [{"id": "one", "task": "Wait.", "dependencies": ["one"]}]}


async def plan(model: Scripted, **fields: dict[str, str]) -> Plan:
    return await make_plan(model, TARGET, GOAL, TOOLS, **fields)


async def test_goal_and_tools_are_shown() -> None:
    model = Scripted(GOOD)
    assert [step.id for step in (await plan(model)).steps] == ["one", "two"]
    (request,) = model.requests
    assert request.purpose == "plan"
    assert request.messages[1] is GOAL
    assert all(f"- {tool.name}:" in request.messages[0].text for tool in SHELVES)
    assert "finished already" not in request.messages[0].text


async def test_plan_that_cannot_be_run_is_asked_for_once_more_with_the_reason() -> None:
    model = Scripted(CYCLE, GOOD)
    assert len((await plan(model)).steps) == 2
    *_, wrong, complaint = model.requests[1].messages
    assert '"dependencies":["one"]' in wrong.text
    assert "wait for each other: one needs one" in complaint.text


async def test_second_one_is_refused_for_good() -> None:
    model = Scripted(CYCLE, CYCLE)
    with pytest.raises(PlanRefusedError, match="one needs one"):
        await plan(model)
    assert len(model.requests) == 2


async def test_finished_steps_are_shown_and_may_be_reused() -> None:
    model = Scripted({"steps": [{"id": "a", "reuse": "one"}, {"id": "b", "reuse": "gone"}]}, GOOD)
    await plan(model, finished={"one": "The first is red."})
    assert "- one: The first is red." in model.requests[0].messages[0].text
    assert "step b reuses gone" in model.requests[1].messages[-1].text


async def test_failed_call_fails_the_plan() -> None:
    with pytest.raises(ModelUnavailableError):
        await plan(Scripted(ModelUnavailableError()))
