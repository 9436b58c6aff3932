"""Accept, complete, cancel, claim and commit on one turn, two at a time, in either order.

The first transaction is held open while the second one begins. Whatever the order, nothing that
was accepted is lost and nothing happens twice.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import pytest
from sqlalchemy import Connection, Engine, func, select, update

from shared.clock import now
from shared.database import create_sync_engine
from shared.ids import ConversationId, TurnId, new_injection_id
from shared.repositories import (
    conversations,
    endings,
    injections,
    leases,
    messages,
    summaries,
    turns,
)
from shared.repositories.endings import CancelRequest, Completion
from shared.repositories.summaries import Checkpoint
from shared.settings import Settings
from shared.tables import Injection, Message, Turn
from shared.turn_state import (
    OPEN_STATUSES,
    Fence,
    InjectionState,
    TurnStatus,
)
from tests.helpers.interleave import Both, interleave
from tests.helpers.posting import new_turn

Operation = Callable[[Connection, TurnId], object]

LEASE_S = 60.0
# Of one operation.
MOST_STATEMENTS = 6


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_sync_engine(Settings.from_environment({"TURNMILL_DATABASE_URL": database_url}))
    yield engine
    engine.dispose()


def post(
    connection: Connection, number: int = 1, conversation: ConversationId | None = None
) -> TurnId:
    turn = new_turn(conversation)
    if conversation is None:
        conversations.insert_conversation(connection, turn.conversation_id, turn_count=1)
    turns.insert_turn(connection, turn, number)
    return turn.id


def claim(connection: Connection, turn_id: TurnId) -> object:
    return turns.claim_turn(
        connection,
        turn_id,
        owner="worker-b",
        lease_s=LEASE_S,
        turn_timeout_s=600,
    )


def accept(connection: Connection, turn_id: TurnId) -> object:
    return injections.accept_injection(
        connection,
        turn_id,
        injection_id=new_injection_id(),
        content="one more thing",
    )


def complete(connection: Connection, turn_id: TurnId) -> object:
    completion = Completion(answer="answer", usage={}, iterations=1, compacted=False)
    return endings.complete_turn(connection, Fence(turn_id, 1), completion)


def fail(connection: Connection, turn_id: TurnId) -> object:
    failure = endings.Failure(type="model_error", message="no")
    return endings.fail_turn(connection, Fence(turn_id, 1), failure)


def cancel(connection: Connection, turn_id: TurnId) -> object:
    return endings.request_cancel(connection, turn_id, CancelRequest(by="api", reason=None))


def commit(connection: Connection, turn_id: TurnId) -> object:
    fence = Fence(turn_id, 1)
    inbox = turns.fence_write(connection, fence, lease_s=LEASE_S)
    if inbox is None:
        return None
    taken = injections.commit_injections(connection, turn_id)
    if taken:
        row = turns.get_turn(connection, turn_id)
        assert row is not None
        messages.append_message(
            connection,
            turn_id=turn_id,
            conversation_id=row.conversation_id,
            role="user",
            kind="injection",
            content="\n\n".join(item.content for item in taken),
        )
    return taken


def compact(connection: Connection, turn_id: TurnId) -> object:
    row = turns.get_turn(connection, turn_id)
    assert row is not None
    summaries.lock_history(connection, row.conversation_id)
    if turns.fence_write(connection, Fence(turn_id, 1), lease_s=LEASE_S) is None:
        return False
    checkpoint = Checkpoint(until_position=1, method="llm", content="x", tokens=1, model=None)
    summaries.insert_checkpoint(connection, row.conversation_id, checkpoint)
    return True


def release(connection: Connection, turn_id: TurnId) -> object:
    return leases.release_lease(connection, Fence(turn_id, 1))


def lapse(connection: Connection, turn_id: TurnId) -> None:
    connection.execute(update(Turn).where(Turn.id == turn_id).values(lease_until=now(-5.0)))


OPERATIONS = {
    operation.__name__: operation
    for operation in (accept, complete, fail, cancel, claim, commit, release)
}


def check_invariants(connection: Connection, turn_id: TurnId, *, accepted: int) -> None:
    turn = connection.execute(select(Turn.__table__).where(Turn.id == turn_id)).one()
    states = dict(
        connection.execute(
            select(Injection.state, func.count())
            .where(Injection.turn_id == turn_id)
            .group_by(Injection.state),
        ).all(),
    )
    kinds = dict(
        connection.execute(
            select(Message.kind, func.count())
            .where(Message.turn_id == turn_id)
            .group_by(Message.kind),
        ).all(),
    )
    positions = list(
        connection.execute(
            select(Message.position)
            .where(Message.conversation_id == turn.conversation_id)
            .order_by(Message.position),
        ).scalars(),
    )
    assert sum(states.values()) == accepted, "every message that got a yes is on record"
    assert turn.pending_injections == states.get(InjectionState.ACCEPTED, 0)
    assert positions == list(range(1, len(positions) + 1))
    if turn.status not in OPEN_STATUSES:
        assert InjectionState.ACCEPTED not in states, "an ended turn keeps nothing back"
        assert turn.lease_owner is None
    if turn.status == TurnStatus.COMPLETED:
        assert kinds.get("answer", 0) == 1
        assert InjectionState.RETURNED not in states
    else:
        assert kinds.get("answer", 0) == 0
    if turn.attempt:
        assert kinds.get("input", 0) == 1


@pytest.mark.parametrize("is_lapsed", [False, True], ids=["held", "lapsed"])
@pytest.mark.parametrize(
    ("first", "second"),
    list(product(OPERATIONS, OPERATIONS)),
    ids=str,
)
def test_running_turn_survives_every_pair(
    engine: Engine,
    first: str,
    second: str,
    *,
    is_lapsed: bool,
) -> None:
    with engine.begin() as connection:
        turn_id = post(connection)
        assert claim(connection, turn_id) is not None
        if is_lapsed:
            lapse(connection, turn_id)

    both = interleave(
        engine,
        lambda connection: OPERATIONS[first](connection, turn_id),
        lambda connection: OPERATIONS[second](connection, turn_id),
    )

    assert not isinstance(both.second, Exception), both.second
    accepted = (first == "accept" and both.first is True) + (
        second == "accept" and both.second is True
    )
    with engine.begin() as connection:
        check_invariants(connection, turn_id, accepted=accepted)


@pytest.mark.parametrize(
    ("first", "second"),
    list(product(("accept", "cancel", "claim"), repeat=2)),
    ids=str,
)
def test_queued_turn_survives_every_pair(engine: Engine, first: str, second: str) -> None:
    with engine.begin() as connection:
        turn_id = post(connection)

    both = interleave(
        engine,
        lambda connection: OPERATIONS[first](connection, turn_id),
        lambda connection: OPERATIONS[second](connection, turn_id),
    )

    assert not isinstance(both.second, Exception), both.second
    accepted = (first == "accept" and both.first is True) + (
        second == "accept" and both.second is True
    )
    if first == second == "claim":
        assert both.first is not None
        assert both.second is None
    with engine.begin() as connection:
        check_invariants(connection, turn_id, accepted=accepted)


def test_injection_accepted_while_completing_keeps_the_turn_open(engine: Engine) -> None:
    with engine.begin() as connection:
        turn_id = post(connection)
        claim(connection, turn_id)

    both = interleave(
        engine,
        lambda connection: accept(connection, turn_id),
        lambda connection: complete(connection, turn_id),
    )

    assert both.first is True
    assert both.second is None


def test_completion_refuses_the_injection_that_comes_after(engine: Engine) -> None:
    with engine.begin() as connection:
        turn_id = post(connection)
        claim(connection, turn_id)

    both = interleave(
        engine,
        lambda connection: complete(connection, turn_id),
        lambda connection: accept(connection, turn_id),
    )

    assert both.first is not None
    assert both.second is False


def test_two_claims_of_a_lapsed_lease_give_one_winner(engine: Engine) -> None:
    with engine.begin() as connection:
        turn_id = post(connection)
        claim(connection, turn_id)
        lapse(connection, turn_id)

    both = interleave(
        engine,
        lambda connection: claim(connection, turn_id),
        lambda connection: claim(connection, turn_id),
    )

    assert both.first is not None
    assert both.second is None
    with engine.begin() as connection:
        row = connection.execute(
            select(Turn.attempt, Turn.crashes, Turn.stream_epoch).where(Turn.id == turn_id),
        ).one()
    assert tuple(row) == (2, 1, 2)


def test_two_queued_turns_of_a_conversation_are_not_active_at_once(engine: Engine) -> None:
    with engine.begin() as connection:
        first_id = post(connection)
        view = turns.get_turn(connection, first_id)
        assert view is not None
        second_id = post(connection, number=2, conversation=view.conversation_id)

    both = interleave(
        engine,
        lambda connection: claim(connection, first_id),
        lambda connection: claim(connection, second_id),
    )

    assert both.first is not None
    assert both.second is None


def post_three(engine: Engine) -> list[TurnId]:
    """Post three turns of one conversation, the first of which runs."""
    with engine.begin() as connection:
        first = post(connection)
        view = turns.get_turn(connection, first)
        assert view is not None
        others = [
            post(connection, number=number, conversation=view.conversation_id) for number in (2, 3)
        ]
        claim(connection, first)
    return [first, *others]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["active first", "queued first"])
@pytest.mark.parametrize("end", [complete, fail])
def test_two_ends_of_a_conversation_ring_the_turn_after_both(
    engine: Engine, end: Operation, order: tuple[int, int]
) -> None:
    ids = post_three(engine)
    operations = (end, cancel)

    both = interleave(
        engine,
        lambda connection: operations[order[0]](connection, ids[order[0]]),
        lambda connection: operations[order[1]](connection, ids[order[1]]),
    )

    ended = (both.first, both.second)
    assert all(isinstance(item, endings.EndedTurn) for item in ended), ended
    rung = [item.next_turn_id for item in ended if isinstance(item, endings.EndedTurn)]
    assert rung[-1] == ids[2] or rung == [ids[2], None]


def on(turn_id: TurnId, operation: Operation) -> Callable[[Connection], object]:
    return lambda connection: operation(connection, turn_id)


def post_another(connection: Connection, turn_id: TurnId) -> None:
    view = turns.get_turn(connection, turn_id)
    assert view is not None
    number = turns.take_turn_number(connection, view.conversation_id)
    assert number is not None
    # Two have their numbers already, without having taken them.
    post(connection, number=number + 2, conversation=view.conversation_id)


def check_rung(
    connection: Connection, conversation_id: ConversationId, both: Both[object, object]
) -> None:
    """Check that a queued turn that became the first one was rung by whoever made it that."""
    ended = [item for item in (both.first, both.second) if isinstance(item, endings.EndedTurn)]
    listed = turns.list_turns(connection, conversation_id, after_number=0, limit=10)
    head = next(turn for turn in listed if turn.status in OPEN_STATUSES)
    if ended and head.status is TurnStatus.QUEUED:
        assert head.id in [item.next_turn_id for item in ended]


@pytest.mark.parametrize("state", ["queued", "held", "lapsed"])
@pytest.mark.parametrize("other", [accept, cancel, claim, post_another])
@pytest.mark.parametrize(
    "operation", [accept, complete, fail, cancel, claim, commit, compact, release]
)
def test_neighbours_never_wait_for_each_other(
    engine: Engine, operation: Operation, other: Operation, state: str
) -> None:
    """Two turns of a conversation, the second transaction beginning after any statement."""
    # SQLite's second transaction begins after the first one's commit, whatever its statements.
    most = MOST_STATEMENTS if engine.dialect.name == "postgresql" else 1
    for after, is_swapped in product(range(1, most + 1), (False, True)):
        with engine.begin() as connection:
            first = post(connection)
            view = turns.get_turn(connection, first)
            assert view is not None
            second, _third = (post(connection, number, view.conversation_id) for number in (2, 3))
            if state != "queued":
                claim(connection, first)
            if state == "lapsed":
                lapse(connection, first)
        pair = (on(first, operation), on(second, other))

        both = interleave(engine, *(reversed(pair) if is_swapped else pair), after=after)

        assert not isinstance(both.second, Exception), both.second
        with engine.begin() as connection:
            check_rung(connection, view.conversation_id, both)


def test_every_claim_after_the_first_opens_an_epoch(engine: Engine) -> None:
    """Whoever held the turn before may still be about to append at the old one."""
    with engine.begin() as connection:
        turn_id = post(connection)
        claim(connection, turn_id)
        release(connection, turn_id)
        claim(connection, turn_id)
        owner = turns.get_stream_owner(connection, turn_id)
    assert owner is not None
    assert (owner.epoch, owner.attempt) == (2, 2)


def test_locked_lease_is_not_waited_for_and_not_lost(engine: Engine) -> None:
    """A heartbeat renews what it can: whoever has a row locked will be through in a moment."""
    with engine.begin() as connection:
        locked, free, taken = (post(connection) for _ in range(3))
        for turn_id in (locked, free, taken):
            claim(connection, turn_id)
        lapse(connection, taken)
        turns.claim_turn(connection, taken, owner="worker-c", lease_s=LEASE_S, turn_timeout_s=600)
    fences = [Fence(turn_id, 1) for turn_id in (locked, free, taken)]

    both = interleave(
        engine,
        partial(accept, turn_id=locked),
        lambda connection: leases.renew_leases(
            connection, fences, owner="worker-b", lease_s=LEASE_S
        ),
    )

    renewed = both.second
    assert isinstance(renewed, dict)
    # SQLite has one writer: there the heartbeat comes after the other.
    is_locked = engine.dialect.name == "postgresql"
    assert (renewed[fences[0]] is None) == is_locked
    assert renewed[fences[1]] is not None
    assert fences[2] not in renewed
