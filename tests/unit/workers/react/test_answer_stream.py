"""The answer on its way: what is under way when the turn stops comes before word of that."""

import asyncio
from typing import cast

import pytest

from shared.events import Answer, Event
from workers.react.answer_stream import COALESCE_S, AnswerStream
from workers.runtime.progress import Progress
from workers.runtime.turn_run import TurnRun


class Events:
    """Takes a turn's events, but only while the gate is open."""

    def __init__(self) -> None:
        self.taken: list[Event] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = asyncio.Event()

    async def emit(self, *events: Event) -> None:
        """Take events in order."""
        if not self.gate.is_set():
            self.waiting.set()
            await self.gate.wait()
        self.taken += events


@pytest.fixture
async def events() -> Events:
    return Events()


@pytest.fixture
async def answer(events: Events) -> AnswerStream:
    """Give an answer whose first piece is out."""
    answer = AnswerStream(cast("TurnRun", events), Progress())
    await answer.add("first")
    assert events.taken == [
        Answer(status="start"),
        Answer(status="delta", content="first", offset=0),
    ]
    events.taken.clear()
    return answer


async def test_settling_waits_for_the_piece_under_way(answer: AnswerStream, events: Events) -> None:
    events.gate.clear()
    await answer.add(" second")
    await asyncio.wait_for(events.waiting.wait(), 5)

    settling = asyncio.ensure_future(answer.settle())
    await asyncio.sleep(0)
    assert not settling.done()
    events.gate.set()
    await settling

    assert events.taken == [Answer(status="delta", content=" second", offset=5)]


async def test_settled_answer_publishes_no_more(answer: AnswerStream, events: Events) -> None:
    """The piece that was to come is not lost: it counts as part of the answer so far."""
    await answer.add(" second")

    await answer.settle()

    # Whatever was to run by then has run.
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(2 * COALESCE_S, passed.set)
    await passed.wait()
    assert events.taken == []
    assert answer.text == "first second"
