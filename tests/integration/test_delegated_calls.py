"""Two who settle tool calls of one turn at once: exactly one of them rings the turn.

The first transaction is held open while the second one begins, after each of its statements.
"""

from collections.abc import Callable, Iterator
from itertools import product

import pytest
from sqlalchemy import Connection, Engine, select, update

from shared.clock import now
from shared.database import create_sync_engine
from shared.ids import ToolCallId, TurnId, new_injection_id, new_tool_call_id
from shared.repositories import (
    conversations,
    delegated_calls,
    endings,
    injections,
    leases,
    tool_calls,
    turns,
)
from shared.repositories.delegated_calls import CallClaim, Settled
from shared.repositories.endings import CancelRequest, EndedTurn
from shared.repositories.tool_calls import StoredToolCall
from shared.settings import Settings
from shared.tables import ToolCall, Turn
from shared.task_names import ToolTask, TurnTask
from shared.turn_state import ApprovalState, Fence, ToolCallState, TurnStatus
from tests.helpers.interleave import interleave
from tests.helpers.posting import new_turn

LEASE_S = 60.0
# Of one operation.
MOST_STATEMENTS = 4
ATTEMPTS = 3


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_sync_engine(Settings.from_environment({"TURNMILL_DATABASE_URL": database_url}))
    yield engine
    engine.dispose()


def asked_for(seq: int, *, waits: bool, queue: str | None = None) -> StoredToolCall:
    return StoredToolCall(
        id=new_tool_call_id(),
        iteration=1,
        seq=seq,
        call_id=f"call_{seq}",
        name="tool",
        arguments="{}",
        state=ToolCallState.WAITING_APPROVAL if waits else ToolCallState.READY,
        result=None,
        is_error=False,
        elapsed_s=None,
        queue=queue,
        is_repeatable=True,
        timeout_s=5.0,
        approval=ApprovalState.WAITING if waits else None,
    )


def claim_turn(connection: Connection, turn_id: TurnId) -> turns.ClaimedTurn | None:
    return turns.claim_turn(
        connection, turn_id, owner="worker", lease_s=LEASE_S, turn_timeout_s=600
    )


def begin(connection: Connection, *calls: StoredToolCall) -> TurnId:
    """Write down a running turn of attempt 1 with these calls."""
    turn = new_turn()
    conversations.insert_conversation(connection, turn.conversation_id, turn_count=1)
    turns.insert_turn(connection, turn, 1)
    assert claim_turn(connection, turn.id) is not None
    tool_calls.insert_tool_calls(
        connection, Fence(turn.id, 1), list(calls), approval_timeout_s=600.0
    )
    return turn.id


def park(connection: Connection, turn_id: TurnId) -> TurnStatus | None:
    fence = Fence(turn_id, 1)
    assert turns.fence_write(connection, fence, lease_s=LEASE_S) is not None
    return delegated_calls.park_turn(connection, fence, remaining_s=100.0)


def task(turn_id: TurnId, call: StoredToolCall, connection: Connection) -> ToolTask:
    turn = turns.get_turn(connection, turn_id)
    assert turn is not None
    return delegated_calls.task_of(call, turn_id, turn.conversation_id)


def claim_call(
    connection: Connection, turn_id: TurnId, call: StoredToolCall, lease_s: float = LEASE_S
) -> CallClaim | None:
    return delegated_calls.claim_call(
        connection, task(turn_id, call, connection), lease_s=lease_s, max_attempts=ATTEMPTS
    )


def finish(connection: Connection, claim: CallClaim) -> Settled | None:
    done = claim.call.finished(state=ToolCallState.DONE, result="done", is_error=False)
    return delegated_calls.finish_call(connection, claim, done)


def approve(connection: Connection, turn_id: TurnId, call_id: ToolCallId) -> Settled | None:
    return delegated_calls.decide_call(connection, turn_id, call_id, is_approved=True, reason=None)


def rings(outcome: object) -> int:
    """Count the turn's doorbells that an operation asks for."""
    if not isinstance(outcome, Settled):
        return 0
    return sum(isinstance(item, TurnTask) for item in outcome.tasks)


def states(engine: Engine, turn_id: TurnId) -> list[ToolCallState]:
    with engine.begin() as connection:
        return [call.state for call in tool_calls.get_tool_calls(connection, turn_id)]


@pytest.mark.parametrize("after", range(1, MOST_STATEMENTS + 1))
def test_last_two_results_ring_once(engine: Engine, after: int) -> None:
    calls = [asked_for(seq, waits=False, queue="tools") for seq in (1, 2)]
    with engine.begin() as connection:
        turn_id = begin(connection, *calls)
        assert park(connection, turn_id) is TurnStatus.RUNNING
        claims = [claim_call(connection, turn_id, call) for call in calls]

    first, second = claims
    assert first is not None
    assert second is not None
    both = interleave(
        engine,
        lambda connection: finish(connection, first),
        lambda connection: finish(connection, second),
        after=after,
    )

    assert rings(both.first) + rings(both.second) == 1
    assert states(engine, turn_id) == [ToolCallState.DONE] * 2


Operation = Callable[[Connection, TurnId, StoredToolCall, CallClaim], object]
OPERATIONS: dict[str, Operation] = {
    "approve": lambda connection, turn_id, call, _claim: approve(connection, turn_id, call.id),
    "refuse": lambda connection, turn_id, call, _claim: delegated_calls.decide_call(
        connection, turn_id, call.id, is_approved=False, reason=None
    ),
    "inject": lambda connection, turn_id, _call, _claim: (
        injections.accept_injection(
            connection, turn_id, injection_id=new_injection_id(), content="wait"
        )
        and delegated_calls.refuse_open_calls(connection, turn_id, "user sent a message")
    ),
    "finish": lambda connection, _turn_id, _call, claim: finish(connection, claim),
}


@pytest.mark.parametrize("after", range(1, MOST_STATEMENTS + 1))
@pytest.mark.parametrize(
    ("one", "other"),
    [pair for pair in product(OPERATIONS, OPERATIONS) if "finish" in pair and pair[0] != pair[1]],
)
def test_decision_and_result_ring_once(engine: Engine, one: str, other: str, after: int) -> None:
    """The last open calls are one that waits for approval and one that a tools worker runs."""
    waiting = asked_for(1, waits=True)
    running = asked_for(2, waits=False, queue="tools")
    with engine.begin() as connection:
        turn_id = begin(connection, waiting, running)
        assert park(connection, turn_id) is TurnStatus.WAITING
        claim = claim_call(connection, turn_id, running)
    assert claim is not None

    both = interleave(
        engine,
        lambda connection: OPERATIONS[one](connection, turn_id, waiting, claim),
        lambda connection: OPERATIONS[other](connection, turn_id, waiting, claim),
        after=after,
    )

    assert not isinstance(both.second, Exception)
    assert rings(both.first) + rings(both.second) == 1
    with engine.begin() as connection:
        claimed = claim_turn(connection, turn_id)
    assert claimed is not None
    # Put off while the turn waited.
    assert claimed.remaining_s == pytest.approx(100.0, abs=5)


@pytest.mark.parametrize("after", range(1, MOST_STATEMENTS + 1))
@pytest.mark.parametrize("park_is_first", [True, False])
@pytest.mark.parametrize("name", ["approve", "refuse", "inject"])
def test_turn_is_parked_or_goes_on(
    engine: Engine, name: str, after: int, *, park_is_first: bool
) -> None:
    """A decision as the turn is parked: either the worker goes on, or the turn is rung."""
    waiting = asked_for(1, waits=True)
    with engine.begin() as connection:
        turn_id = begin(connection, waiting)

    def decide(connection: Connection) -> object:
        claim = CallClaim(
            call=waiting, turn_id=turn_id, conversation_id=new_turn().conversation_id, attempt=1
        )
        return OPERATIONS[name](connection, turn_id, waiting, claim)

    def let_go(connection: Connection) -> TurnStatus | None:
        return park(connection, turn_id)

    parking: object
    decision: object
    if park_is_first:
        both = interleave(engine, let_go, decide, after=after)
        parking, decision = both.first, both.second
    else:
        swapped = interleave(engine, decide, let_go, after=after)
        parking, decision = swapped.second, swapped.first

    assert parking in (None, TurnStatus.WAITING)
    assert isinstance(decision, Settled)
    is_parked = parking is not None
    assert is_parked == (rings(decision) == 1)


@pytest.mark.parametrize("after", range(1, MOST_STATEMENTS + 1))
@pytest.mark.parametrize("cancel_is_first", [True, False])
@pytest.mark.parametrize("name", ["approve", "finish"])
def test_cancel_meets_a_decision(
    engine: Engine, name: str, after: int, *, cancel_is_first: bool
) -> None:
    """A turn that nobody holds ends at once, and none of its calls stays open."""
    waiting = asked_for(1, waits=True)
    running = asked_for(2, waits=False, queue="tools")
    with engine.begin() as connection:
        turn_id = begin(connection, waiting, running)
        park(connection, turn_id)
        claim = claim_call(connection, turn_id, running)
    assert claim is not None

    def cancel(connection: Connection) -> EndedTurn | None:
        return endings.request_cancel(connection, turn_id, CancelRequest(by="api", reason=None))

    def other(connection: Connection) -> object:
        return OPERATIONS[name](connection, turn_id, waiting, claim)

    if cancel_is_first:
        ended = interleave(engine, cancel, other, after=after).first
    else:
        outcome = interleave(engine, other, cancel, after=after).second
        assert not isinstance(outcome, Exception)
        ended = outcome

    assert ended is not None
    finished = {ToolCallState.DONE, ToolCallState.UNKNOWN}
    assert set(states(engine, turn_id)) <= finished
    with engine.begin() as connection:
        assert not delegated_calls.renew_call(connection, claim, lease_s=LEASE_S)


def test_call_is_claimed_once(engine: Engine) -> None:
    call = asked_for(1, waits=False, queue="tools")
    with engine.begin() as connection:
        turn_id = begin(connection, call)

    both = interleave(
        engine,
        lambda connection: claim_call(connection, turn_id, call),
        lambda connection: claim_call(connection, turn_id, call),
    )

    assert both.first is not None
    assert both.second is None


def test_lost_call_is_taken_again_and_the_late_result_is_refused(engine: Engine) -> None:
    call = asked_for(1, waits=False, queue="tools")
    with engine.begin() as connection:
        turn_id = begin(connection, call)
        park(connection, turn_id)
        late = claim_call(connection, turn_id, call, lease_s=-1)
        again = claim_call(connection, turn_id, call)
        assert late is not None
        assert again is not None
        assert not delegated_calls.renew_call(connection, late, lease_s=LEASE_S)
        assert finish(connection, late) is None
        settled = finish(connection, again)

    assert rings(settled) == 1


def test_call_whose_workers_are_always_lost_ends_as_unknown(engine: Engine) -> None:
    call = asked_for(1, waits=False, queue="tools")
    with engine.begin() as connection:
        turn_id = begin(connection, call)
        park(connection, turn_id)
        for _ in range(ATTEMPTS):
            assert claim_call(connection, turn_id, call, lease_s=-1) is not None
        assert claim_call(connection, turn_id, call) is None
        due = delegated_calls.find_due_calls(
            connection, limit=10, max_attempts=ATTEMPTS, with_lapsed=True
        )
        settled = [
            delegated_calls.settle_due_call(connection, item, max_attempts=ATTEMPTS) for item in due
        ]

    assert [rings(item) for item in settled] == [1]
    assert states(engine, turn_id) == [ToolCallState.UNKNOWN]


def test_only_what_can_run_is_rung_again(engine: Engine) -> None:
    """A parked turn is not rung while its calls are delegated; calls are, once it is time."""
    ready = asked_for(1, waits=False, queue="tools")
    waiting = asked_for(2, waits=True, queue="tools")

    def due_tasks(connection: Connection) -> list[ToolCallId]:
        tasks = delegated_calls.take_due_tasks(
            connection,
            limit=10,
            max_attempts=ATTEMPTS,
            is_queue_empty=False,
            with_lapsed=True,
        )
        return [item.tool_call_id for item in tasks]

    with engine.begin() as connection:
        turn_id = begin(connection, ready, waiting)
        park(connection, turn_id)
        connection.execute(update(Turn).values(rung_at=None))
        assert not leases.take_due_doorbells(
            connection, limit=10, is_queue_empty=True, with_lapsed=True
        )
        assert due_tasks(connection) == []
        connection.execute(update(ToolCall).values(rung_at=now(-31.0)))
        assert due_tasks(connection) == [ready.id]
        assert due_tasks(connection) == []
        rung = connection.execute(select(ToolCall.rings).where(ToolCall.id == ready.id))
        assert rung.scalar_one() == 2
