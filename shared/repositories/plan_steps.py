"""The steps of planned turns: made ready, claimed, ended, and what each end sets going.

The turn is parked while its steps are open: nobody holds it, and it may be claimed again once the
last of them has ended. Whoever adds, claims or ends a step locks the turn first. So what is ready,
what is skipped, the cap and who was the last are decided by one after the other, and exactly one
of those who end the last steps rings the turn.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, Connection, and_, bindparam, case, insert, or_, select, update

from shared.clock import now
from shared.database import AnyRow
from shared.ids import ConversationId, TurnId
from shared.repositories.turns import wake_turn
from shared.tables import PlanStep, Turn
from shared.turn_state import STARTED_STEPS, Fence, StepFence, StepState, TurnStatus

# Why a step was skipped that nothing blocked.
GIVEN_UP = "the plan was given up"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStep:
    """A step as the planner wrote it."""

    step_id: str
    task: str
    dependencies: tuple[str, ...] = ()
    tool_hint: str | None = None
    model_hint: str | None = None
    # The step that a result was taken from, and that result.
    reuse: str | None = None
    result: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A step as its row stands."""

    step_id: str
    task: str
    dependencies: tuple[str, ...]
    state: StepState
    attempt: int
    crashes: int
    reuse: str | None
    result: str | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedStep:
    """A step that this process works on."""

    fence: StepFence
    conversation_id: ConversationId
    crashes: int
    task: str
    tool_hint: str | None
    model_hint: str | None
    # Results of the steps that it depends on, in the plan's order.
    results: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advanced:
    """What an end, or a new plan, has set going. Ring after the commit."""

    # Ids of steps to ring for.
    ready: tuple[str, ...] = ()
    # Steps that will not run, and the step that blocks each.
    skipped: Mapping[str, str] = field(default_factory=dict)
    # Whether the turn is to be rung: nothing is left to be done.
    is_over: bool = False


def add_plan(
    connection: Connection,
    fence: Fence,
    round_: int,
    steps: Iterable[NewStep],
    *,
    cap: int,
) -> Advanced:
    """Write down the steps of a round, let go of the turn, and make the first steps ready.

    The caller holds the turn's row lock. cap: most steps of a turn that run at once.
    """
    turn_id = fence.turn_id
    rows = [
        {
            "turn_id": turn_id,
            "round": round_,
            "seq": seq,
            "step_id": step.step_id,
            "task": step.task,
            "dependencies": list(step.dependencies),
            "tool_hint": step.tool_hint,
            "model_hint": step.model_hint,
            "reuse": step.reuse,
            "result": step.result,
            "state": StepState.PENDING if step.result is None else StepState.COMPLETED,
        }
        for seq, step in enumerate(steps, start=1)
    ]
    connection.execute(insert(PlanStep), rows)
    connection.execute(
        update(Turn)
        .where(Turn.id == turn_id, Turn.attempt == fence.attempt)
        .values(lease_owner=None, lease_until=None, rung_at=None, rings=0),
    )
    return _advance(connection, turn_id, round_, cap=cap)


def get_steps(connection: Connection, turn_id: TurnId, round_: int) -> list[StepView]:
    """Return the steps of a round in the plan's order."""
    query = (
        select(*_VIEW)
        .where(PlanStep.turn_id == turn_id, PlanStep.round == round_)
        .order_by(PlanStep.seq)
    )
    return [_view(row) for row in connection.execute(query)]


def claim_step(
    connection: Connection,
    turn_id: TurnId,
    round_: int,
    step_id: str,
    *,
    owner: str,
    lease_s: float,
) -> ClaimedStep | None:
    """Take a step that is ready, or that its worker has let go of or was lost with.

    Returns None if there is nothing to claim, or the turn is about to end.
    """
    turn = _lock_turn(connection, turn_id)
    if turn is None or turn.cancel_requested_at is not None:
        return None
    is_lapsed = and_(PlanStep.lease_until.is_not(None), PlanStep.lease_until < now())
    claim = (
        update(PlanStep)
        .where(*_key(turn_id, round_, step_id), is_claimable())
        .values(
            state=StepState.RUNNING,
            attempt=PlanStep.attempt + 1,
            crashes=PlanStep.crashes + case((is_lapsed, 1), else_=0),
            lease_owner=owner,
            lease_until=now(lease_s),
            started_at=case((PlanStep.started_at.is_(None), now()), else_=PlanStep.started_at),
            rung_at=None,
            rings=0,
        )
        .returning(
            *_VIEW,
            PlanStep.tool_hint,
            PlanStep.model_hint,
        )
    )
    row = connection.execute(claim).one_or_none()
    if row is None:
        return None
    needed = set(row.dependencies)
    return ClaimedStep(
        fence=StepFence(turn_id=turn_id, round=round_, step_id=step_id, attempt=row.attempt),
        conversation_id=ConversationId(turn.conversation_id),
        crashes=row.crashes,
        task=row.task,
        tool_hint=row.tool_hint,
        model_hint=row.model_hint,
        results={
            step.step_id: step.result or ""
            for step in get_steps(connection, turn_id, round_)
            if step.step_id in needed
        },
    )


def is_claimable() -> ColumnElement[bool]:
    """Say that a worker may claim the step now."""
    is_free = or_(PlanStep.lease_until.is_(None), PlanStep.lease_until < now())
    return or_(
        PlanStep.state == StepState.READY,
        and_(PlanStep.state == StepState.RUNNING, is_free),
    )


def renew_step(connection: Connection, fence: StepFence, *, lease_s: float) -> bool:
    """Renew the lease on a step; False if it is lost."""
    return _write_held(connection, fence, lease_until=now(lease_s))


def release_step(connection: Connection, fence: StepFence) -> bool:
    """Let go of a running step, so that any worker may claim it without counting a crash."""
    return _write_held(
        connection, fence, lease_owner=None, lease_until=None, rung_at=now(), rings=1
    )


def complete_step(
    connection: Connection,
    fence: StepFence,
    result: str,
    *,
    cap: int,
) -> Advanced | None:
    """End a step with its result. Returns None if the lease is lost, or the turn has ended."""
    return _end(connection, fence, cap=cap, state=StepState.COMPLETED, result=result)


def fail_step(
    connection: Connection,
    fence: StepFence,
    error: str,
    *,
    cap: int,
) -> Advanced | None:
    """End a step without a result. Returns None if the lease is lost, or the turn has ended."""
    return _end(connection, fence, cap=cap, state=StepState.FAILED, error=error)


def give_up_plan(connection: Connection, turn_id: TurnId, round_: int) -> Advanced | None:
    """Skip the steps of a round that nobody has begun; those that run are left to finish.

    Returns None if the turn has ended.
    """
    if _lock_turn(connection, turn_id) is None:
        return None
    skip = (
        update(PlanStep)
        .where(
            PlanStep.turn_id == turn_id,
            PlanStep.round == round_,
            PlanStep.state.in_((StepState.PENDING, StepState.READY)),
        )
        .values(state=StepState.SKIPPED, error=GIVEN_UP, finished_at=now())
        .returning(PlanStep.step_id)
    )
    skipped = sorted(connection.execute(skip).scalars())
    return Advanced(
        skipped=dict.fromkeys(skipped, GIVEN_UP),
        is_over=wake_turn(connection, turn_id) is not None,
    )


def decide(steps: Sequence[StepView], *, cap: int) -> Advanced:
    """Return what may start of a round, and what never will. `is_over` is for the rows to say.

    steps: in the plan's order, which is that in which they are made ready.
    """
    by_id = {step.step_id: step for step in steps}
    blockers: dict[str, str] = {
        step.step_id: step.step_id
        for step in steps
        if step.state in (StepState.FAILED, StepState.SKIPPED)
    }
    skipped: dict[str, str] = {}
    waiting = [step for step in steps if step.state is StepState.PENDING]
    # A plan may name a step before those that it needs.
    while blocked := [
        (step.step_id, name)
        for step in waiting
        if step.step_id not in skipped
        for name in step.dependencies
        if name in blockers
    ]:
        for step_id, name in blocked:
            # The step that failed, not the one that was skipped for it.
            skipped.setdefault(step_id, blockers[name])
            blockers.setdefault(step_id, skipped[step_id])
    room = cap - sum(step.state in STARTED_STEPS for step in steps)
    ready = [
        step.step_id
        for step in waiting
        if step.step_id not in skipped
        and all(by_id[name].state is StepState.COMPLETED for name in step.dependencies)
    ]
    return Advanced(ready=tuple(ready[: max(room, 0)]), skipped=skipped)


_VIEW = (
    PlanStep.step_id,
    PlanStep.task,
    PlanStep.dependencies,
    PlanStep.state,
    PlanStep.attempt,
    PlanStep.crashes,
    PlanStep.reuse,
    PlanStep.result,
    PlanStep.error,
)
_LOCK_TURN = (
    select(Turn.id, Turn.conversation_id, Turn.cancel_requested_at)
    .where(Turn.id == bindparam("turn"), Turn.status == TurnStatus.RUNNING)
    .with_for_update()
)


def _lock_turn(connection: Connection, turn_id: TurnId) -> AnyRow | None:
    return connection.execute(_LOCK_TURN, {"turn": turn_id}).one_or_none()


def _key(turn_id: TurnId, round_: int, step_id: str) -> tuple[ColumnElement[bool], ...]:
    return (
        PlanStep.turn_id == turn_id,
        PlanStep.round == round_,
        PlanStep.step_id == step_id,
    )


def _write_held(connection: Connection, fence: StepFence, **values: object) -> bool:
    write = (
        update(PlanStep)
        .where(
            *_key(fence.turn_id, fence.round, fence.step_id),
            PlanStep.attempt == fence.attempt,
            PlanStep.state == StepState.RUNNING,
            PlanStep.lease_owner.is_not(None),
        )
        .values(**values)
        .returning(PlanStep.step_id)
    )
    return connection.execute(write).one_or_none() is not None


def _end(
    connection: Connection,
    fence: StepFence,
    *,
    cap: int,
    **values: object,
) -> Advanced | None:
    if _lock_turn(connection, fence.turn_id) is None:
        return None
    ended = _write_held(
        connection,
        fence,
        lease_owner=None,
        lease_until=None,
        finished_at=now(),
        **values,
    )
    if not ended:
        return None
    return _advance(connection, fence.turn_id, fence.round, cap=cap)


def _advance(connection: Connection, turn_id: TurnId, round_: int, *, cap: int) -> Advanced:
    """Make steps ready or skipped as the others stand. The caller holds the turn's row lock."""
    decided = decide(get_steps(connection, turn_id, round_), cap=cap)
    if decided.ready:
        connection.execute(
            update(PlanStep)
            .where(
                PlanStep.turn_id == turn_id,
                PlanStep.round == round_,
                PlanStep.step_id.in_(decided.ready),
            )
            .values(state=StepState.READY, rung_at=now(), rings=1),
        )
    for step_id, blocker in decided.skipped.items():
        connection.execute(
            update(PlanStep)
            .where(*_key(turn_id, round_, step_id))
            .values(state=StepState.SKIPPED, error=f"blocked by step {blocker}", finished_at=now()),
        )
    return Advanced(
        ready=decided.ready,
        skipped=decided.skipped,
        is_over=wake_turn(connection, turn_id) is not None,
    )


def _view(row: AnyRow) -> StepView:
    return StepView(
        step_id=row.step_id,
        task=row.task,
        dependencies=tuple(row.dependencies),
        state=StepState(row.state),
        attempt=row.attempt,
        crashes=row.crashes,
        reuse=row.reuse,
        result=row.result,
        error=row.error,
    )
