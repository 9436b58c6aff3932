"""A plan as a model writes it, and what is made of it: steps that can be run in some order."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

MAX_STEPS = 6
MAX_ID_CHARS = 40


class StepAnswer(BaseModel):
    """One step of the work."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    id: str = Field(description="short and unique, such as s1")
    task: str = Field(
        default="",
        description="all that whoever works on it has to know; nothing else is shown to them",
    )
    dependencies: list[str] = Field(
        default_factory=list,
        description="ids of the steps whose results it needs",
    )
    tool_hint: str | None = Field(default=None, description="name of the tool that may serve best")
    model_hint: str | None = Field(
        default=None,
        description="`fast` for what is easy, `reasoning` for what is hard; else left out",
    )
    reuse: str | None = Field(
        default=None,
        description="id of a finished step whose result is taken, in place of a task",
    )

    @field_validator("dependencies", mode="before")
    @classmethod
    def _read_dependencies(cls, value: object) -> object:
        """Take `null`, one id and ids in one text for the list that is meant."""
        if value is None:
            return []
        if isinstance(value, str):
            return [name.strip() for name in value.split(",") if name.strip()]
        return [value] if isinstance(value, int) else value

    @field_validator("id", "task", "tool_hint", "model_hint", "reuse")
    @classmethod
    def _strip(cls, value: str | None) -> str | None:
        return value.strip() if value else value


class PlanAnswer(BaseModel):
    """The steps that lead to what the user wants."""

    steps: list[StepAnswer] = Field(description=f"2 to {MAX_STEPS} steps", min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _wrap(cls, value: Any) -> Any:  # noqa: ANN401 - whatever a model wrote
        """Take a single step for a plan of one."""
        if isinstance(value, dict) and "steps" not in value and "task" in value:
            return {"steps": [value]}
        if isinstance(value, dict) and isinstance(value.get("steps"), dict):
            return {"steps": [value["steps"]]}
        return value


class PlanRefusedError(ValueError):
    """The plan cannot be run; the message tells the model why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """One step of a plan."""

    id: str
    task: str
    # Ids of steps of the same plan, each once.
    dependencies: tuple[str, ...] = ()
    tool_hint: str | None = None
    model_hint: str | None = None
    # Id of a finished step of an earlier round, whose result stands for this one's.
    reuse: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps without a cycle, in the order in which they were written."""

    steps: tuple[PlannedStep, ...]
    # What was changed of what the model wrote.
    notes: tuple[str, ...] = ()


def read_plan(answer: PlanAnswer, finished: Collection[str] = ()) -> Plan:
    """Return a plan that can be run.

    Of steps with the same id all but the first get new ones, and dependencies on steps that do not
    exist are left out; the notes say so.
    finished: ids of the steps of earlier rounds that may be reused.
    Raises PlanRefusedError for a cycle, a step without a task, a reuse of what is not finished, and
    too many steps.
    """
    if len(answer.steps) > MAX_STEPS:
        raise PlanRefusedError(f"it has {len(answer.steps)} steps: at most {MAX_STEPS} are allowed")
    notes: list[str] = []
    named = _with_unique_ids(answer.steps, notes)
    known = {step.id for step in named}
    steps = tuple(_with_known_dependencies(step, known, notes) for step in named)
    for step in steps:
        _check_work(step, finished)
    if cycle := find_cycle(steps):
        raise PlanRefusedError(f"its steps wait for each other: {' needs '.join(cycle)}")
    return Plan(steps=steps, notes=tuple(notes))


def _with_unique_ids(steps: Iterable[StepAnswer], notes: list[str]) -> list[PlannedStep]:
    taken: set[str] = set()
    named = []
    for number, step in enumerate(steps, start=1):
        wanted = step.id[:MAX_ID_CHARS] or f"s{number}"
        step_id = wanted
        suffix = 2
        while step_id in taken:
            step_id = f"{wanted[: MAX_ID_CHARS - 4]}-{suffix}"
            suffix += 1
        if step_id != wanted:
            notes.append(f"a second step {wanted} was renamed {step_id}")
        taken.add(step_id)
        named.append(
            PlannedStep(
                id=step_id,
                task=step.task,
                dependencies=tuple(
                    dict.fromkeys(name[:MAX_ID_CHARS] for name in step.dependencies)
                ),
                tool_hint=step.tool_hint or None,
                model_hint=step.model_hint or None,
                reuse=step.reuse or None,
            )
        )
    return named


def _with_known_dependencies(
    step: PlannedStep,
    known: Collection[str],
    notes: list[str],
) -> PlannedStep:
    kept = tuple(name for name in step.dependencies if name in known)
    notes.extend(
        f"step {step.id} does not depend on {name}: there is no such step"
        for name in step.dependencies
        if name not in known
    )
    return replace(step, dependencies=kept)


def _check_work(step: PlannedStep, finished: Collection[str]) -> None:
    if step.reuse is not None and step.reuse not in finished:
        raise PlanRefusedError(f"step {step.id} reuses {step.reuse}, which is no finished step")
    if step.reuse is None and not step.task:
        raise PlanRefusedError(f"step {step.id} has no task")


def find_cycle(steps: Iterable[PlannedStep]) -> list[str]:
    """Return the ids along a cycle, its first one again at the end; [] if there is none."""
    open_steps = {step.id: step.dependencies for step in steps}
    while ready := [name for name, needs in open_steps.items() if not open_steps.keys() & needs]:
        for name in ready:
            del open_steps[name]
    if not open_steps:
        return []
    # Whoever follows open dependencies comes back to where they were.
    path = [next(iter(open_steps))]
    while path[-1] not in path[:-1]:
        path.append(next(name for name in open_steps[path[-1]] if name in open_steps))
    return path[path.index(path[-1]) :]
