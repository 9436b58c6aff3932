"""Reading a turn's events over HTTP: replay, live, resume, loss, and the end in every case."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from api import reading
from api.event_stream import EventStreamResponse
from api.feed import Feeds
from api.reading import Reading
from shared import redis_keys
from shared.event_log import EventId
from shared.events import Answer
from shared.ids import TurnId
from shared.settings import Settings
from tests.helpers.api_server import Api, Worker, serve_api
from tests.helpers.fold import assert_agrees, fold
from tests.helpers.servers import RedisServer
from tests.helpers.waiting import wait_until_async


@pytest.fixture
async def api(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    monkeypatch.setattr(Feeds.__init__, "__kwdefaults__", {"check_s": 0.3})
    async with serve_api(settings) as running:
        yield running


async def answered(api: Api, pieces: tuple[str, ...] = ("one ", "two ", "three")) -> TurnId:
    turn_id = await api.post_turn()
    worker = await Worker.claim(api.parts, turn_id)
    for piece in pieces:
        await worker.say(piece)
    await worker.complete()
    return turn_id


async def listeners(api: Api, count: int) -> None:
    await wait_until_async(
        lambda: api.parts.feeds.count_listeners() == count,
        message=f"there are not {count} listeners",
    )


async def test_resume_at_every_position_gives_exactly_the_rest(api: Api) -> None:
    turn_id = await answered(api)
    everything = await api.read_all(turn_id)

    assert [event.event for event in everything] == [
        "snapshot",
        "status",
        "answer",
        "answer",
        "answer",
        "done",
    ]
    for position, event in enumerate(everything[:-1]):
        assert await api.read_all(turn_id, event.id) == everything[position + 1 :]
    turn = (await api.http.get(f"/v1/turns/{turn_id}")).json()
    assert_agrees(fold(everything), turn)


async def test_live_events_follow_stored_ones_and_two_clients_see_the_same(api: Api) -> None:
    turn_id = await api.post_turn()
    worker = await Worker.claim(api.parts, turn_id)
    async with api.events(turn_id) as first:
        await first.read(2)
        await worker.say("one ")
        async with api.events(turn_id) as second:
            await second.read(3)
            await worker.say("two ")
            await first.read(4)
            await worker.say("three")
            await worker.complete()
            seen = await asyncio.gather(first.read_all(), second.read_all())
    assert seen[0] == seen[1]
    assert seen[0][-1].event == "done"
    await listeners(api, 0)


async def test_headers_keep_proxies_from_buffering(api: Api) -> None:
    turn_id = await answered(api)
    async with api.events(turn_id) as stream:
        headers = stream.response.headers
        await stream.read_all()
    assert headers["content-type"].startswith("text/event-stream")
    assert headers["cache-control"] == "no-cache, no-transform"
    assert headers["x-accel-buffering"] == "no"


async def test_post_with_event_stream_answers_with_the_events(api: Api) -> None:
    async with api.http.stream(
        "POST",
        "/v1/turns",
        json={"input": "question"},
        headers={"Accept": "text/event-stream"},
    ) as response:
        assert response.status_code == 200
        turn_id = TurnId(response.headers["location"].rpartition("/")[2])
        await listeners(api, 1)
        worker = await Worker.claim(api.parts, turn_id)
        await worker.say("answer")
        await worker.complete()
        async with asyncio.timeout(20):
            text = (await response.aread()).decode()
    assert text.count("id: ") == 4
    assert "event: done\n" in text


async def test_resume_at_or_after_the_terminal_event_is_204(api: Api) -> None:
    turn_id = await answered(api)
    last = (await api.read_all(turn_id))[-1].id
    for after in (last, "1-99", "2-1", "7-3"):
        async with api.events(turn_id, after) as stream:
            assert stream.response.status_code == 204, after
            assert await stream.response.aread() == b""
    response = await api.http.get(f"/v1/turns/{turn_id}/events?after={last}")
    assert response.status_code == 204


async def test_after_expiry_the_database_gives_the_end_and_its_ids_resume(api: Api) -> None:
    turn_id = await answered(api)
    await api.parts.redis.flushall()
    events = await api.read_all(turn_id, "1-2")
    assert [(event.id, event.event) for event in events] == [("2-0", "snapshot"), ("2-1", "done")]
    assert events[1].data["answer"] == "one two three"
    assert await api.read_all(turn_id, "2-0") == events[1:]
    async with api.events(turn_id, "2-1") as stream:
        assert stream.response.status_code == 204


async def test_id_beyond_the_top_of_an_open_stream_replays_from_the_snapshot(api: Api) -> None:
    turn_id = await api.post_turn()
    worker = await Worker.claim(api.parts, turn_id)
    async with api.http.stream("GET", f"/v1/turns/{turn_id}/events?after=9-9") as response:
        await listeners(api, 1)
        await worker.say("answer")
        await worker.complete()
        async with asyncio.timeout(20):
            text = (await response.aread()).decode()
    assert text.startswith("id: 1-0\nevent: snapshot\n")
    assert text.endswith("\n\n")
    assert "event: done\n" in text


async def test_flushed_redis_gives_readers_a_new_snapshot_without_a_writer(api: Api) -> None:
    turn_id = await api.post_turn()
    worker = await Worker.claim(api.parts, turn_id)
    await worker.say("one ")
    async with api.events(turn_id) as stream:
        await stream.read(3)
        await api.parts.redis.flushall()
        events = await stream.read(4)
        assert (events[3].id, events[3].event) == ("2-0", "snapshot")
        await worker.say("two")
        await worker.complete()
        events = await stream.read_all()
    turn = (await api.http.get(f"/v1/turns/{turn_id}")).json()
    assert turn["answer"] == "one two"
    assert_agrees(fold(events), turn)


async def test_lost_stream_of_an_open_turn_is_opened_for_a_new_reader(api: Api) -> None:
    turn_id = await api.post_turn()
    await api.parts.redis.flushall()
    async with api.events(turn_id, "1-0") as stream:
        events = await stream.read(1)
    assert (events[0].id, events[0].event) == ("2-0", "snapshot")


async def test_opening_that_was_left_is_completed_for_a_reader(api: Api) -> None:
    turn_id = await api.post_turn()
    await api.parts.redis.flushall()
    await api.parts.streams.log.open(turn_id, 1)
    async with api.events(turn_id) as stream:
        events = await stream.read(1)
    assert (events[0].id, events[0].event) == ("1-0", "snapshot")


async def test_end_that_was_never_announced_comes_from_the_database(api: Api) -> None:
    turn_id = await api.post_turn()
    worker = await Worker.claim(api.parts, turn_id)
    await worker.say("answer")
    async with api.events(turn_id) as stream:
        await stream.read(3)
        await worker.complete(is_announced=False)
        events = await stream.read_all()
    assert [(event.id, event.event) for event in events[3:]] == [
        ("2-0", "snapshot"),
        ("2-1", "done"),
    ]
    # The same for one who comes later, who still gets what the stream holds.
    assert await api.read_all(turn_id, "1-1") == events[2:]


async def test_gap_in_what_is_heard_is_read_from_the_stream(api: Api) -> None:
    turn_id = await api.post_turn()
    worker = await Worker.claim(api.parts, turn_id)
    async with api.events(turn_id) as stream:
        await stream.read(2)
        # Two events that nobody is told of: what pub/sub loses.
        key = redis_keys.event_stream(turn_id)
        for text in ("a", "b"):
            data = Answer(status="delta", content=text, offset=0).encode(turn_id)
            await api.parts.redis.xadd(key, {"event": "answer", "data": data}, id="1-*")
        await worker.say("c")
        events = await stream.read(5)
    assert [event.id for event in events] == ["1-0", "1-1", "1-2", "1-3", "1-4"]


async def test_new_epoch_is_followed_without_reading_again(api: Api) -> None:
    turn_id = await api.post_turn()
    worker = await Worker.claim(api.parts, turn_id)
    async with api.events(turn_id) as stream:
        await stream.read(2)
        owner = await api.parts.streams.get_owner(turn_id)
        assert owner is not None
        await api.parts.streams.reopen(turn_id, owner)
        await worker.say("answer")
        await worker.complete()
        events = await stream.read_all()
    assert [event.id for event in events] == ["1-0", "1-1", "2-0", "2-1", "2-2", "2-3"]


async def test_slow_reader_is_dropped_and_can_resume(
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "MAX_WAITING", 3)
    turn_id = await api.post_turn()
    worker = await Worker.claim(api.parts, turn_id)
    slow = Reading(api.parts.feeds, turn_id)
    with api.parts.feeds.attach(turn_id, slow):
        taken = await slow.take(patience_s=5)
        async with asyncio.timeout(10):
            while not slow.is_dropped.is_set():
                await worker.say("x")
        assert await slow.take(patience_s=5) == []
        assert slow.is_over
    await worker.complete()
    rest = await api.read_all(turn_id, str(taken[-1].id))
    assert rest[-1].event == "done"
    assert EventId.parse(rest[0].id) == (1, 2)


async def test_long_stream_is_replayed_in_batches(api: Api) -> None:
    turn_id = await api.post_turn()
    worker = await Worker.claim(api.parts, turn_id)
    events = [Answer(status="delta", content="x", offset=0)] * 2_500
    await worker.writer.emit(*events)
    await worker.complete()
    assert len(await api.read_all(turn_id)) == 2_503


async def test_events_of_unknown_turns_and_wrong_ids_are_refused(api: Api) -> None:
    turn_id = await answered(api)
    assert (await api.http.get("/v1/turns/turn_1/events")).status_code == 404
    assert (await api.http.get("/v1/turns/turn%00/events")).status_code == 404
    response = await api.http.get(f"/v1/turns/{turn_id}/events", headers={"Last-Event-ID": "x"})
    assert response.status_code == 422
    assert "send the id of an event" in response.json()["detail"]


async def test_deleted_conversation_ends_its_readers(api: Api) -> None:
    turn_id = await api.post_turn()
    worker = await Worker.claim(api.parts, turn_id)
    await worker.complete(is_announced=False)
    last = Reading(api.parts.feeds, turn_id)
    with api.parts.feeds.attach(turn_id, last):
        path = f"/v1/conversations/{worker.conversation_id}"
        assert (await api.http.delete(path)).status_code == 204
        await wait_until_async(lambda: last.is_over, message="the reading is not over")


async def test_closing_the_feeds_ends_open_streams_and_waits(api: Api) -> None:
    turn_id = await api.post_turn()
    wait = asyncio.create_task(api.http.get(f"/v1/turns/{turn_id}?wait=50"))
    async with api.events(turn_id) as stream:
        await stream.read(1)
        await listeners(api, 2)
        api.parts.feeds.close()
        await stream.read_all()
    assert (await wait).json()["status"] == "queued"


async def test_keep_alive_is_one_line_between_events(api: Api) -> None:
    turn_id = await api.post_turn()
    reader = Reading(api.parts.feeds, turn_id)
    response = EventStreamResponse(api.parts.feeds, reader, keep_alive_s=0.05)
    sent: list[bytes] = []
    hung_up = asyncio.Event()

    async def send(message: dict[str, object]) -> None:
        body = message.get("body", b"")
        assert isinstance(body, bytes)
        sent.append(body)
        if sent.count(b": ping\n") == 3:
            hung_up.set()

    async def receive() -> dict[str, object]:
        await hung_up.wait()
        return {"type": "http.disconnect"}

    async with asyncio.timeout(10):
        await response({"type": "http"}, receive, send)  # type: ignore[arg-type]
    assert b"event: snapshot" in b"".join(sent)
    await listeners(api, 0)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
class TestRedisDown:
    @pytest.fixture
    def redis_url(self, own_redis: RedisServer) -> str:
        return own_redis.url

    async def test_readers_stay_attached_and_go_on(self, api: Api, own_redis: RedisServer) -> None:
        turn_id = await api.post_turn()
        worker = await Worker.claim(api.parts, turn_id)
        async with api.events(turn_id) as stream:
            await stream.read(2)
            own_redis.kill()
            await worker.say("one ")
            assert (await api.http.get(f"/v1/turns/{turn_id}/events")).status_code == 503
            own_redis.restart()
            await stream.read(3)
            await worker.writer.emit()
            await worker.complete()
            events = await stream.read_all()
        assert events[2].event == "snapshot"
        assert events[-1].data["answer"] == "one "

    async def test_turns_are_accepted_read_and_ended(
        self, api: Api, own_redis: RedisServer
    ) -> None:
        own_redis.kill()
        turn_id = await api.post_turn()
        response = await api.http.get(f"/v1/turns/{turn_id}/events")
        assert response.status_code == 503
        assert response.headers["retry-after"] == "2"
        assert (await api.http.get("/readyz")).status_code == 503
        assert (await api.http.post(f"/v1/turns/{turn_id}/cancel")).status_code == 200
        events = await api.read_all(turn_id)
        assert [event.event for event in events] == ["snapshot", "cancelled"]

    async def test_turn_that_ends_meanwhile_ends_its_readers(
        self, api: Api, own_redis: RedisServer
    ) -> None:
        turn_id = await api.post_turn()
        worker = await Worker.claim(api.parts, turn_id)
        async with api.events(turn_id) as stream:
            await stream.read(2)
            own_redis.kill()
            await worker.complete()
            events = await stream.read_all()
        assert [event.id for event in events[2:]] == ["2-0", "2-1"]
