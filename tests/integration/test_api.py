"""The routes over HTTP: what is accepted, what is refused, and what is found afterwards."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import func, select

from api.feed import Feeds
from api.waiting import EndWaiter
from shared.control import parse_control
from shared.redis_keys import control_channel
from shared.repositories.injections import MAX_PENDING
from shared.settings import Settings
from shared.tables import Turn
from tests.helpers.api_server import Api, Worker, serve_api
from tests.helpers.ports import free_port
from tests.helpers.waiting import wait_until_async

Json = dict[str, Any]


@pytest.fixture
async def api(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    monkeypatch.setattr(Feeds.__init__, "__kwdefaults__", {"check_s": 0.3})
    async with serve_api(settings) as running:
        yield running


async def count_turns(api: Api) -> int:
    count = select(func.count()).select_from(Turn)
    return await api.parts.database.read(lambda connection: connection.execute(count).scalar_one())


def check_problem(response: httpx2.Response, status: int, *words: str) -> Json:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: Json = response.json()
    assert body["status"] == status
    assert body["error"]["message"] == body["detail"]
    for word in words:
        assert word in body["detail"]
    return body


class TestPostingTurns:
    async def test_turn_is_accepted_queued_and_rung(self, api: Api) -> None:
        metadata = {"user": "ž", "n": [1, None, 2.5]}
        body = {"input": "question", "metadata": metadata, "tools": ["calculator"], "model": "m"}
        response = await api.http.post("/v1/turns", json=body)
        turn = response.json()
        assert response.status_code == 202
        assert response.headers["location"] == f"/v1/turns/{turn['id']}"
        assert turn["status"] == "queued"
        assert turn["queue_position"] == 0
        assert turn["metadata"] == metadata
        assert (await api.http.get(response.headers["location"])).json() == turn
        assert await api.parts.doorbell.count_waiting("turns") == 1
        last = await api.parts.streams.log.read_last(turn["id"])
        assert last is not None
        assert last.name == "snapshot"

    async def test_second_turn_waits_its_turn_or_is_rejected(self, api: Api) -> None:
        first = (await api.http.post("/v1/turns", json={"input": "1"})).json()
        again: Json = {"input": "2", "conversation_id": first["conversation_id"]}
        second = await api.http.post("/v1/turns", json=again)
        assert second.json()["queue_position"] == 1
        rejected = await api.http.post("/v1/turns", json=again | {"if_busy": "reject"})
        check_problem(rejected, 409, '"if_busy": "queue"')
        assert await count_turns(api) == 2

    async def test_repeated_request_gives_the_same_turn(self, api: Api) -> None:
        headers = {"Idempotency-Key": "key 1"}
        first = await api.http.post("/v1/turns", json={"input": "1"}, headers=headers)
        second = await api.http.post("/v1/turns", json={"input": "1"}, headers=headers)
        assert (first.status_code, second.status_code) == (202, 200)
        assert first.json() == second.json()
        assert first.headers["location"] == second.headers["location"]
        other = await api.http.post("/v1/turns", json={"input": "2"}, headers=headers)
        check_problem(other, 409, "use a new key")

    async def test_requests_with_one_key_at_once_make_one_turn(self, api: Api) -> None:
        async def post() -> httpx2.Response:
            headers = {"Idempotency-Key": "key"}
            return await api.http.post("/v1/turns", json={"input": "1"}, headers=headers)

        responses = await asyncio.gather(*(post() for _ in range(20)))
        assert sorted(response.status_code for response in responses) == [200] * 19 + [202]
        assert len({response.json()["id"] for response in responses}) == 1
        assert await count_turns(api) == 1

    async def test_unknown_conversation_is_refused(self, api: Api) -> None:
        response = await api.http.post("/v1/turns", json={"input": "1", "conversation_id": "x"})
        check_problem(response, 404, "leave conversation_id out")
        assert await count_turns(api) == 0


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
class TestBadInput:
    @pytest.mark.parametrize(
        ("body", "status", "words"),
        [
            (b"{", 400, "not valid JSON"),
            (b"", 422, "body is missing"),
            (b'{"input": NaN}', 400, "NaN is not a JSON number"),
            (b"\xff", 400, "not UTF-8"),
            (b'{"input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "nested too deeply"),
            (b'{"input": "a\\u0000"}', 422, "input must not contain NUL"),
            (b'{"input": "a\\ud800"}', 422, "input must be valid Unicode"),
            (b'{"input": [{"type": "text", "text": 1}]}', 422, "input[0].text must be"),
            (b'{"input": "a", "colour": 1}', 422, "colour is not a known field: remove it"),
            (b'{"input": "a", "\\ud800": 1}', 422, "body must be valid Unicode"),
            (b'{"input": {}}', 422, "input must be a text, or a list of parts"),
            (b"{}", 422, "input is missing: send it"),
            (b"[]", 422, "body must be"),
            (b'{"input": "a", "metadata": {"x": 1e999}}', 422, "metadata must not hold infinite"),
            (b'{"input": "' + b"a" * 400_001 + b'"}', 422, "may have 400000: send less"),
            (b'{"input": "' + b"a" * 10_000_000 + b'"}', 413, "larger than 1000000 bytes"),
        ],
    )
    async def test_each_gives_one_clear_sentence(
        self, api: Api, body: bytes, status: int, words: str
    ) -> None:
        headers = {"Content-Type": "application/json"}
        response = await api.http.post("/v1/turns", content=body, headers=headers)
        check_problem(response, status, words)
        assert await count_turns(api) == 0

    async def test_fields_are_named_one_by_one(self, api: Api) -> None:
        response = await api.http.post("/v1/turns", json={"input": 5, "mode": 1, "x": 2})
        body = check_problem(response, 422)
        assert [item["field"] for item in body["errors"]] == ["input", "mode", "x"]
        assert body["error"]["param"] == "input"
        assert body["error"]["type"] == "invalid_request_error"

    async def test_streamed_body_is_limited_too(self, api: Api) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(30):
                yield b" " * 100_000

        headers = {"Content-Type": "application/json"}
        response = await api.http.post("/v1/turns", content=chunks(), headers=headers)
        check_problem(response, 413, "send less")

    async def test_body_must_say_that_it_is_json(self, api: Api) -> None:
        headers = {"Content-Type": "text/plain"}
        response = await api.http.post("/v1/turns", content=b'{"input": "a"}', headers=headers)
        check_problem(response, 415, "Content-Type: application/json")

    async def test_unknown_routes_methods_and_ids(self, api: Api) -> None:
        check_problem(await api.http.get("/v2"), 404, "/docs")
        check_problem(await api.http.put("/v1/turns"), 405, "PUT is not possible here: use POST")
        for path in ("/v1/turns/turn_1", "/v1/turns/%00", "/v1/conversations/conv_1"):
            check_problem(await api.http.get(path), 404, "check the id")

    @pytest.mark.parametrize("key", ["", "x" * 256, "ž".encode()])
    async def test_wrong_idempotency_key(self, api: Api, key: str | bytes) -> None:
        headers = [(b"Idempotency-Key", key if isinstance(key, bytes) else key.encode())]
        response = await api.http.post("/v1/turns", json={"input": "1"}, headers=headers)
        check_problem(response, 422, "Idempotency-Key must")

    @pytest.mark.parametrize("query", ["wait=61", "wait=-1", "wait=nan", "wait=x"])
    async def test_wrong_wait(self, api: Api, query: str) -> None:
        turn_id = await api.post_turn()
        check_problem(await api.http.get(f"/v1/turns/{turn_id}?{query}"), 422, "wait must")

    async def test_crash_tells_nothing_and_is_logged(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def crash(*_: object) -> None:
            raise RuntimeError("secret")

        monkeypatch.setattr(type(api.parts.database), "read", crash)
        response = await api.http.get("/v1/models")
        check_problem(response, 500, "X-Request-ID")
        assert "secret" not in response.text


class TestWaiting:
    async def test_wait_returns_when_the_turn_ends(self, api: Api) -> None:
        turn_id = await api.post_turn()
        wait = asyncio.create_task(api.http.get(f"/v1/turns/{turn_id}?wait=30"))
        await wait_until_async(api.parts.feeds.count_listeners, message="nobody waits")
        worker = await Worker.claim(api.parts, turn_id)
        await worker.say("answer")
        await worker.complete()
        async with asyncio.timeout(5):
            turn = (await wait).json()
        assert (turn["status"], turn["answer"]) == ("completed", "answer")
        assert turn["finished_at"] is not None

    async def test_end_without_an_event_is_found_too(self, api: Api) -> None:
        turn_id = await api.post_turn()
        wait = asyncio.create_task(api.http.get(f"/v1/turns/{turn_id}?wait=30"))
        await wait_until_async(api.parts.feeds.count_listeners, message="nobody waits")
        worker = await Worker.claim(api.parts, turn_id)
        await worker.complete(is_announced=False)
        async with asyncio.timeout(5):
            assert (await wait).json()["status"] == "completed"

    async def test_wait_gives_up_in_time(self, api: Api) -> None:
        turn_id = await api.post_turn()
        async with asyncio.timeout(5):
            response = await api.http.get(f"/v1/turns/{turn_id}?wait=0.2")
        assert response.json()["status"] == "queued"
        assert api.parts.feeds.count_listeners() == 0

    async def test_waiter_is_woken_for_each_reason(self) -> None:
        waiter = EndWaiter()
        for wake in (waiter.catch_up, waiter.end, waiter.close):
            wake()
            async with asyncio.timeout(1):
                await waiter.wait()
        assert waiter.is_closed


class TestInjecting:
    async def test_message_is_kept_published_and_sent(self, api: Api) -> None:
        turn_id = await api.post_turn()
        async with api.parts.redis.pubsub() as pubsub:
            await pubsub.subscribe(control_channel(turn_id))
            path = f"/v1/turns/{turn_id}/inject"
            response = await api.http.post(path, json={"content": "also this"})
            injection = response.json()
            assert response.status_code == 202
            assert injection["state"] == "accepted"
            control = await next_message(pubsub)
        assert parse_control(control).injection_id == injection["id"]
        last = await api.parts.streams.log.read_last(turn_id)
        assert last is not None
        assert last.name == "inject"
        page = (await api.http.get(f"/v1/turns/{turn_id}/injections")).json()
        assert page == {"items": [injection], "next": None}

    async def test_repeated_message_is_taken_once(self, api: Api) -> None:
        turn_id = await api.post_turn()

        async def inject(content: str) -> httpx2.Response:
            return await api.http.post(
                f"/v1/turns/{turn_id}/inject",
                json={"content": content},
                headers={"Idempotency-Key": "key"},
            )

        responses = await asyncio.gather(*(inject("a") for _ in range(5)))
        assert sorted(response.status_code for response in responses) == [200] * 4 + [202]
        check_problem(await inject("b"), 409, "use a new key")
        page = (await api.http.get(f"/v1/turns/{turn_id}/injections")).json()
        assert len(page["items"]) == 1

    async def test_ended_full_and_unknown_turns_refuse(self, api: Api) -> None:
        turn_id = await api.post_turn()
        path = f"/v1/turns/{turn_id}/inject"
        for _ in range(MAX_PENDING):
            assert (await api.http.post(path, json={"content": "a"})).status_code == 202
        full = check_problem(await api.http.post(path, json={"content": "a"}), 409, "64 unread")
        assert full["code"] == "inbox_full"
        await api.http.post(f"/v1/turns/{turn_id}/cancel")
        ended = check_problem(await api.http.post(path, json={"content": "a"}), 409, "cancelled")
        assert (ended["code"], ended["status_of_turn"]) == ("turn_ended", "cancelled")
        unknown = await api.http.post("/v1/turns/turn_1/inject", json={"content": "a"})
        check_problem(unknown, 404, "check the id")
        field = {"content": "a", "if_finished": "new_turn"}
        check_problem(await api.http.post(path, json=field), 422, "if_finished is not a known")

    async def test_unread_messages_of_a_cancelled_turn_come_back(self, api: Api) -> None:
        turn_id = await api.post_turn()
        await api.http.post(f"/v1/turns/{turn_id}/inject", json={"content": "a"})
        await api.http.post(f"/v1/turns/{turn_id}/cancel")
        names = [(e.event, e.data.get("state")) for e in await api.read_all(turn_id)]
        assert names == [
            ("snapshot", None),
            ("inject", "accepted"),
            ("inject", "returned"),
            ("cancelled", None),
        ]


class TestCancelling:
    async def test_queued_turn_ends_at_once(self, api: Api) -> None:
        turn_id = await api.post_turn()
        path = f"/v1/turns/{turn_id}/cancel"
        response = await api.http.post(path, json={"reason": "enough"})
        assert response.status_code == 200
        turn = response.json()
        assert turn["status"] == "cancelled"
        assert turn["cancel"] == {"by": "api", "reason": "enough"}
        again = await api.http.post(path, json={"reason": "again"})
        assert (again.status_code, again.json()) == (200, turn)
        assert (await api.read_all(turn_id))[-1].data["reason"] == "enough"

    async def test_running_turn_is_asked(self, api: Api) -> None:
        turn_id = await api.post_turn()
        await Worker.claim(api.parts, turn_id)
        async with api.parts.redis.pubsub() as pubsub:
            await pubsub.subscribe(control_channel(turn_id))
            response = await api.http.post(f"/v1/turns/{turn_id}/cancel")
            assert parse_control(await next_message(pubsub)).type == "cancel"
        assert response.status_code == 202
        assert response.json()["status"] == "running"

    async def test_ended_turn_stays_as_it_is(self, api: Api) -> None:
        turn_id = await api.post_turn()
        worker = await Worker.claim(api.parts, turn_id)
        await worker.complete()
        response = await api.http.post(f"/v1/turns/{turn_id}/cancel")
        assert (response.status_code, response.json()["status"]) == (200, "completed")
        unknown = await api.http.post("/v1/turns/turn_1/cancel")
        check_problem(unknown, 404, "check the id")


class TestConversations:
    async def test_pages_hold_everything_once(self, api: Api) -> None:
        turn_ids = [await api.post_turn(f"{number}") for number in range(5)]
        found: list[Json] = []
        params: Json = {"limit": 2}
        while True:
            page = (await api.http.get("/v1/conversations", params=params)).json()
            found += page["items"]
            if page["next"] is None:
                break
            params["after"] = page["next"]
        assert len({item["id"] for item in found}) == len(turn_ids) == len(found)
        assert found == sorted(found, key=lambda item: (item["updated_at"], item["id"]))[::-1]
        check_problem(await api.http.get("/v1/conversations?after=x"), 422, "after must be")

    async def test_messages_and_turns_in_order(self, api: Api) -> None:
        worker = await Worker.claim(api.parts, await api.post_turn("first"))
        conversation_id = worker.conversation_id
        await worker.say("answer")
        await worker.complete()
        later = await api.post_turn("second", conversation_id=conversation_id)
        path = f"/v1/conversations/{conversation_id}"
        assert (await api.http.get(path)).json()["turn_count"] == 2
        page = (await api.http.get(f"{path}/messages?limit=1")).json()
        assert [(item["role"], item["content"]) for item in page["items"]] == [("user", "first")]
        rest = (await api.http.get(f"{path}/messages?after={page['next']}")).json()
        assert [(item["role"], item["content"]) for item in rest["items"]] == [
            ("assistant", "answer"),
        ]
        assert rest["next"] is None
        turns = (await api.http.get(f"{path}/turns?after=1")).json()
        assert [item["id"] for item in turns["items"]] == [later]
        check_problem(await api.http.get(f"{path}/messages?after=-1"), 422, "after must be")
        check_problem(await api.http.get(f"{path}/messages?limit=0"), 422, "limit must")

    async def test_deleting_takes_everything_but_never_an_open_turn(self, api: Api) -> None:
        worker = await Worker.claim(api.parts, await api.post_turn())
        path = f"/v1/conversations/{worker.conversation_id}"
        check_problem(await api.http.delete(path), 409, "cancel it or wait")
        await worker.complete()
        assert (await api.http.delete(path)).status_code == 204
        for gone in (path, f"{path}/messages", f"{path}/turns"):
            check_problem(await api.http.get(gone), 404)
        check_problem(await api.http.get(f"/v1/turns/{worker.claimed.id}"), 404)
        check_problem(await api.http.delete(path), 404)

    async def test_turn_posted_while_deleting_is_refused_or_kept(self, api: Api) -> None:
        worker = await Worker.claim(api.parts, await api.post_turn())
        await worker.complete()
        path = f"/v1/conversations/{worker.conversation_id}"
        body = {"input": "more", "conversation_id": worker.conversation_id}
        posted, deleted = await asyncio.gather(
            api.http.post("/v1/turns", json=body),
            api.http.delete(path),
        )
        assert (posted.status_code, deleted.status_code) in ((202, 409), (404, 204))


class TestModels:
    async def test_configuration_is_written_read_and_deleted(self, api: Api) -> None:
        path = "/v1/models/org/model-1"
        body = {"role": "main", "context_size": 8_000, "api_key_env": "LLM_API_KEY"}
        created = await api.http.put(path, json=body)
        assert created.status_code == 201
        assert created.json()["name"] == "org/model-1"
        assert (await api.http.put(path, json=body | {"context_size": 9_000})).status_code == 200
        assert (await api.http.get(path)).json()["context_size"] == 9_000
        assert (await api.http.put("/v1/models/b", json={"role": "main"})).status_code == 201
        page = (await api.http.get("/v1/models")).json()
        assert [(item["name"], item["role"]) for item in page["items"]] == [
            ("b", "main"),
            ("org/model-1", None),
        ]
        assert (await api.http.delete(path)).status_code == 204
        check_problem(await api.http.delete(path), 404, "/v1/models")
        check_problem(await api.http.get(path), 404, "/v1/models")
        check_problem(await api.http.put("/v1/models/a%00", json={}), 422, "name must not")


class TestProcess:
    async def test_request_ids_come_back_or_are_made(self, api: Api) -> None:
        async def send(value: str) -> str:
            response = await api.http.get("/healthz", headers={"X-Request-ID": value})
            return response.headers["x-request-id"]

        assert await send("abc-1") == "abc-1"
        for wrong in ("a b", "x" * 129, ""):
            made = await send(wrong)
            assert made != wrong
            assert len(made) == 32
        assert "x-request-id" in (await api.http.get("/v2")).headers

    async def test_ready_with_both_parts(self, api: Api) -> None:
        response = await api.http.get("/readyz")
        assert response.json() == {"database": "ok", "redis": "ok"}
        assert (await api.http.get("/")).json()["docs"] == "/docs"
        assert (await api.http.get("/docs")).status_code == 200
        assert (await api.http.get("/openapi.json")).status_code == 200

    @pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
    async def test_sigterm_ends_open_streams_and_the_process(
        self, settings: Settings, tmp_path: Path
    ) -> None:
        port = free_port()
        with (tmp_path / "api.log").open("wb") as log:
            process = start_process(settings, port, log.fileno())
        try:
            async with httpx2.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", trust_env=False
            ) as http:
                await wait_until_async(lambda: is_ready(http), message="the API is not ready")
                turn = (await http.post("/v1/turns", json={"input": "a"})).json()
                path = f"/v1/turns/{turn['id']}"
                wait = asyncio.create_task(http.get(f"{path}?wait=50", timeout=60))
                async with http.stream("GET", f"{path}/events") as response:
                    chunks = response.aiter_raw()
                    assert (await anext(chunks)).startswith(b"id: 1-0\n")
                    process.send_signal(signal.SIGTERM)
                    async with asyncio.timeout(10):
                        assert [chunk async for chunk in chunks] == []
                assert (await wait).status_code == 200
            await asyncio.to_thread(process.wait, 10)
        finally:
            process.kill()
            process.wait()
        text = (tmp_path / "api.log").read_text()
        assert '"event": "request"' in text
        assert "Traceback" not in text
        assert "ResourceWarning" not in text


def start_process(settings: Settings, port: int, log: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-W", "always::ResourceWarning", "-m", "uvicorn"]
    command += ["--factory", "api.app:create_app", "--port", str(port)]
    environment = {
        "TURNMILL_DATABASE_URL": settings.sync_database_url,
        "TURNMILL_REDIS_URL": settings.broker_url,
        "TURNMILL_LOG_FORMAT": "json",
    }
    return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


async def is_ready(http: httpx2.AsyncClient) -> bool:
    try:
        return (await http.get("/readyz")).status_code == 200
    except httpx2.TransportError:
        return False


async def next_message(pubsub: Any) -> bytes:  # noqa: ANN401 - the client's type is loose
    async with asyncio.timeout(10):
        while True:
            message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=1)
            if message is not None:
                data: bytes = message["data"]
                return data
