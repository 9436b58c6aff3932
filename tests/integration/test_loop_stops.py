"""A turn is stopped at a chosen moment of its loop: what was about to follow does not."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from demo.reply import Reply, ToolCall
from shared.errors import HandedOver
from shared.event_log import START, Append, EventLog, StoredEvent
from shared.event_writer import EventStreams
from shared.events import Answer, Event, Step
from shared.file_store import FileStore
from shared.ids import TurnId
from shared.settings import Settings
from tests.helpers.limits import open_limiter
from tests.helpers.model_server import ScriptedModel
from tests.helpers.parts import Parts, open_parts
from tests.helpers.tools import read_starts
from workers.model.client import ModelClient
from workers.model.retry import Retry
from workers.model.timeouts import Timeouts
from workers.react import answer_stream
from workers.react.engine import ReactEngine
from workers.runtime.held import HeldLeases
from workers.runtime.lease import Lease
from workers.runtime.model_book import ModelBook
from workers.runtime.runner import TurnRunner
from workers.tools.toolbox import open_toolbox

# Between two pieces of an answer; the turn is stopped well within it.
COALESCE_S = 0.4
STOP_AFTER_S = 0.1


class WatchedLog(EventLog):
    """Calls `watch` with each event before it is appended."""

    watch: Callable[[Event], None]

    async def append(self, turn_id: TurnId, epoch: int, events: Sequence[Event]) -> Append:
        """Append events in order."""
        for event in events:
            self.watch(event)
        return await super().append(turn_id, epoch, events)


class WatchedLeases(HeldLeases):
    """Knows the newest lease."""

    newest: Lease

    def add(self, lease: Lease) -> None:
        """Have the lease renewed from now on."""
        self.newest = lease
        super().add(lease)


@dataclass
class World:
    """A worker's parts, its engine among them."""

    parts: Parts
    log: WatchedLog
    held: WatchedLeases
    runner: TurnRunner

    async def run_turn(self) -> tuple[TurnId, str]:
        """Post a turn and run it; return its id and what came of it."""
        task = await self.parts.post()
        return task.turn_id, await self.runner.run(task)


@pytest.fixture
async def world(settings: Settings, model: ScriptedModel) -> AsyncIterator[World]:
    settings = settings.model_copy(
        update={
            "llm_base_url": model.base_url,
            "llm_model": "scripted",
            "tools": "tests.helpers.tools:hold_once",
        },
    )
    async with open_parts(settings) as parts, open_limiter(settings.broker_url) as limiter:
        book = ModelBook(parts.database)
        models = ModelClient(
            FileStore(settings.files_path),
            limiter,
            book,
            timeouts=Timeouts.of(settings),
            retry=Retry.of(settings),
        )
        log, held = WatchedLog(parts.redis, settings), WatchedLeases()
        runner = TurnRunner(
            ReactEngine(settings, models, book, open_toolbox(settings, {})).run,
            settings=settings,
            owner="worker",
            database=parts.database,
            streams=EventStreams(log, parts.database),
            subscriptions=parts.subscriptions,
            doorbell=parts.doorbell,
            held=held,
        )
        yield World(parts, log, held, runner)
        await models.close()


async def test_tool_is_not_started_after_publishing_took_the_lease_s_time(
    world: World, model: ScriptedModel, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    call = ToolCall(name="hold_once", arguments={"gate": str(gate)}, id="call_1")
    model.respond_with(Reply(tool_calls=(call,)))

    def watch(event: Event) -> None:
        if isinstance(event, Step) and event.type == "iteration":
            world.held.newest._renewed_at -= 60

    world.log.watch = watch
    _, outcome = await world.run_turn()

    assert outcome == "lease_lost"
    assert read_starts(gate) == []


async def test_nothing_of_an_answer_follows_on_its_hand_over(
    world: World, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second piece of the answer is there and waits for its moment when the worker leaves."""
    monkeypatch.setattr(answer_stream, "COALESCE_S", COALESCE_S)
    loop = asyncio.get_running_loop()
    model.respond_with(Reply(text="One piece of the answer, and another, and one more."))
    hold = model.hold(after_chunks=6)

    def watch(event: Event) -> None:
        if isinstance(event, Answer) and event.status == "start":
            loop.call_later(STOP_AFTER_S, world.held.newest.stop, HandedOver())

    world.log.watch = watch
    turn_id, outcome = await world.run_turn()
    hold.release()
    is_past = asyncio.Event()
    loop.call_later(2 * COALESCE_S, is_past.set)
    await is_past.wait()

    assert outcome == "handed_over"
    events = await world.log.read(turn_id, START)
    assert [said(event) for event in events if event.name == "answer"] == [
        "start",
        "delta",
        "restart",
    ]


def said(event: StoredEvent) -> str:
    return str(orjson.loads(event.data)["status"])
