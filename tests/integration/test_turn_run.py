"""What one attempt writes when it is about to stop: on record is only what came about."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from sqlalchemy import Connection

from shared.database import Database
from shared.errors import Cancelled, HandedOver
from shared.event_log import EventLog
from shared.event_writer import EventStreams, EventWriter
from shared.ids import TurnId, new_injection_id, new_tool_call_id
from shared.repositories import endings, injections, journal, tool_calls, turns
from shared.repositories.endings import CancelRequest
from shared.repositories.journal import Entry
from shared.repositories.tool_calls import StoredToolCall
from shared.repositories.turns import StreamOwner
from shared.settings import Settings
from shared.turn_state import InjectionState, ToolCallState
from tests.helpers.parts import open_parts
from workers.runtime.lease import Lease
from workers.runtime.turn_run import TurnRun

LEASE_S = 60.0
RESPONSE = Entry(seq=1, kind="response", data={})


@dataclass
class World:
    """A store and one claimed turn."""

    database: Database
    run: TurnRun

    @property
    def turn_id(self) -> TurnId:
        """Id of the turn."""
        return self.run.turn.id

    async def inject(self) -> None:
        def work(connection: Connection) -> None:
            assert injections.accept_injection(
                connection,
                self.turn_id,
                injection_id=new_injection_id(),
                content="one more thing",
            )

        await self.database.write(work)

    async def request_cancel(self) -> None:
        request = CancelRequest(by="api", reason=None)

        def work(connection: Connection) -> None:
            assert endings.request_cancel(connection, self.turn_id, request) is None

        await self.database.write(work)

    async def get_states(self) -> list[InjectionState]:
        found = await self.database.read(
            lambda connection: injections.list_injections(connection, self.turn_id),
        )
        return [item.state for item in found]

    async def get_calls(self) -> list[StoredToolCall]:
        return await self.database.read(
            lambda connection: tool_calls.get_tool_calls(connection, self.turn_id),
        )

    async def get_entries(self) -> list[Entry]:
        return await self.database.read(
            lambda connection: journal.get_entries(connection, self.turn_id),
        )


@pytest.fixture
async def world(settings: Settings) -> AsyncIterator[World]:
    async with open_parts(settings) as parts:
        task = await parts.post()
        claimed = await parts.database.write(
            lambda connection: turns.claim_turn(
                connection, task.turn_id, owner="worker", lease_s=LEASE_S, turn_timeout_s=600
            ),
        )
        assert claimed is not None
        run = TurnRun(
            claimed,
            Lease(claimed.fence, lease_s=LEASE_S, inbox=claimed.inbox),
            EventWriter(
                EventStreams(EventLog(parts.redis, settings), parts.database),
                claimed.id,
                StreamOwner(epoch=claimed.stream_epoch, attempt=claimed.attempt),
                tuple,
            ),
            database=parts.database,
            doorbell=parts.doorbell,
            lease_s=LEASE_S,
            approval_timeout_s=60.0,
        )
        yield World(parts.database, run)


def asked_for() -> StoredToolCall:
    return StoredToolCall(
        id=new_tool_call_id(),
        iteration=1,
        seq=1,
        call_id="call_1",
        name="tool",
        arguments="{}",
        state=ToolCallState.READY,
        result=None,
        is_error=False,
        elapsed_s=None,
    )


async def test_tool_calls_of_a_response_are_on_record_as_started(world: World) -> None:
    call = asked_for()

    await world.run.record_response([RESPONSE], [call])

    assert await world.get_calls() == [replace(call, state=ToolCallState.RUNNING)]


async def test_drain_leaves_the_tool_calls_of_a_response_to_the_next_worker(world: World) -> None:
    call = asked_for()
    world.run.lease.drain()

    with pytest.raises(HandedOver):
        await world.run.record_response([RESPONSE], [call])

    assert await world.get_entries() == [RESPONSE]
    assert await world.get_calls() == [call]


async def test_drain_leaves_the_tool_calls_of_an_earlier_attempt_too(world: World) -> None:
    call = asked_for()
    world.run.lease.drain()
    with pytest.raises(HandedOver):
        await world.run.record_response([RESPONSE], [call])

    with pytest.raises(HandedOver):
        await world.run.start_tool_calls([call.id])

    assert await world.get_calls() == [call]


async def test_cancel_keeps_the_tool_calls_of_a_response_from_starting(world: World) -> None:
    call = asked_for()
    await world.request_cancel()

    with pytest.raises(Cancelled):
        await world.run.record_response([RESPONSE], [call])

    assert await world.get_calls() == [call]


async def test_cancelled_turn_commits_no_message_and_gives_it_back(world: World) -> None:
    """The message came before the cancel, and the worker sees both at once."""
    await world.inject()
    await world.request_cancel()

    taken = await world.run.commit_injections(lambda _items: [], [RESPONSE])

    assert taken == []
    assert await world.get_entries() == [RESPONSE]
    assert await world.get_states() == [InjectionState.ACCEPTED]
    with pytest.raises(Cancelled):
        world.run.lease.check()
    await world.run.cancel(partial_answer="", usage={})
    assert await world.get_states() == [InjectionState.RETURNED]


async def test_message_is_committed_once(world: World) -> None:
    await world.inject()

    first, second = await asyncio.gather(
        *(world.run.commit_injections(lambda _items: []) for _ in range(2)),
    )

    assert sorted([len(first), len(second)]) == [0, 1]
    assert await world.get_states() == [InjectionState.COMMITTED]
