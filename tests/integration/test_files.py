"""Images from the upload to the model's request, over HTTP."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from sqlalchemy import func, select

from demo.protocol import ChatRequest
from demo.reply import Reply, ToolCall
from shared.settings import Settings
from shared.tables import File, Turn
from tests.helpers.api_server import Api, Worker, serve_api
from tests.helpers.client import RefusedError, TurnmillClient
from tests.helpers.images import data_url, make_png
from tests.helpers.model_server import ScriptedModel, mentions
from tests.helpers.product import Product

Json = dict[str, Any]

MAX_BYTES = 20_000
PNG = make_png()
GIF = b"GIF89a\x01\x00\x01\x00\x00\x00\x00;"
SUM = ToolCall(name="calculator", arguments={"expression": "17 * 23"}, id="call_sum")


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[Api]:
    update = {"max_file_bytes": MAX_BYTES, "max_body_bytes": 2 * MAX_BYTES, "max_images": 3}
    async with serve_api(settings.model_copy(update=update)) as running:
        yield running


@pytest.fixture
def case() -> str:
    """Give a text that no other test's turns mention: the model is shared."""
    return f"case-{uuid.uuid4().hex}"


async def upload(api: Api, content: bytes, **options: Any) -> httpx2.Response:  # noqa: ANN401 - httpx2's own
    files = {"file": ("cat.txt", content, "text/plain")}
    return await api.http.post("/v1/files", files=files, **options)


async def post(api: Api, *parts: Json, **fields: Any) -> httpx2.Response:  # noqa: ANN401 - JSON
    headers = {"Idempotency-Key": fields.pop("key")} if "key" in fields else {}
    body = {"input": list(parts)} | fields
    return await api.http.post("/v1/turns", json=body, headers=headers)


async def count(api: Api, table: type[File | Turn]) -> int:
    query = select(func.count()).select_from(table)
    return await api.parts.database.read(lambda connection: connection.execute(query).scalar_one())


def stored_names(api: Api) -> set[str]:
    folder = api.parts.settings.files_path
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def sent(content: bytes) -> Json:
    return {"type": "image_url", "image_url": {"url": data_url(content)}}


def uploaded(file_id: str) -> Json:
    return {"type": "image_file", "image_file": {"file_id": file_id}}


def check_problem(response: httpx2.Response, status: int, words: str) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert words in response.json()["detail"]


class TestUploading:
    async def test_image_comes_back_as_what_it_is(self, api: Api) -> None:
        response = await upload(api, GIF)
        file = response.json()
        assert response.status_code == 201
        assert response.headers["location"] == f"/v1/files/{file['id']}"
        assert (file["mime_type"], file["size_bytes"]) == ("image/gif", len(GIF))
        assert file["created_at"]
        got = await api.http.get(response.headers["location"])
        assert (got.status_code, got.content) == (200, GIF)
        assert got.headers["content-type"] == "image/gif"
        assert got.headers["x-content-type-options"] == "nosniff"
        assert got.headers["content-disposition"] == "inline"
        assert got.headers["cache-control"] == "private, max-age=31536000, immutable"

    async def test_largest_image_is_taken_and_a_larger_one_refused(self, api: Api) -> None:
        largest = make_png(padding=MAX_BYTES - len(PNG))
        assert len(largest) == MAX_BYTES
        assert (await upload(api, largest)).status_code == 201
        check_problem(await upload(api, largest + b"x"), 413, "send a smaller one")
        check_problem(await upload(api, PNG + bytes(5 * MAX_BYTES)), 413, "send a smaller file")
        assert await count(api, File) == 1

    @pytest.mark.parametrize("content", [b"", b"hello", b"<svg/>", b"%PDF-1.7"])
    async def test_other_types_are_refused(self, api: Api, content: bytes) -> None:
        check_problem(await upload(api, content), 422, "send PNG, JPEG, GIF or WebP")
        assert (await count(api, File), stored_names(api)) == (0, set())

    async def test_what_is_no_form_with_a_file_is_refused(self, api: Api) -> None:
        path, form = "/v1/files", {"Content-Type": "multipart/form-data; boundary=x"}
        answers = [
            (await api.http.post(path, json={"file": "x"}), 415),
            (await api.http.post(path, content=PNG, headers={"Content-Type": "image/png"}), 415),
            (await api.http.post(path, data={"file": "x"}), 415),
            (await api.http.post(path, files={"file": (None, "x")}), 422),
            (await api.http.post(path, content=b"--y", headers=form), 400),
            (
                await api.http.post(path, headers={"Content-Type": "multipart/form-data"}),
                400,
            ),
        ]
        for response, status in answers:
            check_problem(response, status, "multipart/form-data in the field `file`")
        check_problem(await api.http.post(path, files={"cat": PNG}), 422, "file is missing: send")

    async def test_page_of_another_site_may_not_upload(self, api: Api) -> None:
        headers = {"Sec-Fetch-Site": "cross-site"}
        check_problem(await upload(api, PNG, headers=headers), 403, "other sites may not upload")
        own = {"Sec-Fetch-Site": "same-origin"}
        assert (await upload(api, PNG, headers=own)).status_code == 201

    async def test_unknown_files_and_lost_bytes_are_told_apart(self, api: Api) -> None:
        for path in ("/v1/files/file_1", "/v1/files/..%2Fturnmill", "/v1/files/%00"):
            response = await api.http.get(path)
            assert response.status_code == 404
        file_id = (await upload(api, PNG)).json()["id"]
        (api.parts.settings.files_path / file_id).unlink()
        check_problem(await api.http.get(f"/v1/files/{file_id}"), 410, "upload the image again")

    async def test_directory_that_cannot_be_used_is_no_crash(self, api: Api) -> None:
        api.parts.settings.files_path.write_bytes(b"in the way")
        check_problem(await upload(api, PNG), 503, "TURNMILL_FILES_DIR")
        check_problem(await post(api, sent(PNG)), 503, "TURNMILL_FILES_DIR")
        assert (await count(api, File), await count(api, Turn)) == (0, 0)


class TestPostingImages:
    async def test_turn_and_message_name_their_images(self, api: Api) -> None:
        file_id = (await upload(api, GIF)).json()["id"]
        text = {"type": "text", "text": "What?"}
        turn = (await post(api, sent(PNG), text, uploaded(file_id))).json()
        first, second = turn["attachments"]
        assert first["mime_type"] == "image/png"
        assert second == {"file_id": file_id, "mime_type": "image/gif"}
        assert (await api.http.get(f"/v1/files/{first['file_id']}")).content == PNG
        assert (await api.http.get(f"/v1/turns/{turn['id']}")).json() == turn
        await Worker.claim(api.parts, turn["id"])
        path = f"/v1/conversations/{turn['conversation_id']}/messages"
        (message,) = (await api.http.get(path)).json()["items"]
        assert (message["content"], message["attachments"]) == ("What?", [first, second])

    async def test_turn_without_images_has_none(self, api: Api) -> None:
        turn_id = await api.post_turn()
        worker = await Worker.claim(api.parts, turn_id)
        await worker.say("answer")
        await worker.complete()
        path = f"/v1/conversations/{worker.conversation_id}/messages"
        messages = (await api.http.get(path)).json()["items"]
        assert [message["attachments"] for message in messages] == [[], []]

    async def test_images_alone_are_an_input(self, api: Api) -> None:
        response = await post(api, sent(PNG))
        assert response.status_code == 202
        worker = await Worker.claim(api.parts, response.json()["id"])
        assert worker.claimed.input == ""

    @pytest.mark.parametrize(
        ("parts", "status", "words"),
        [
            ([], 422, "input must not be empty"),
            ([sent(b"text")], 422, "input[0].image_url.url must hold an image: send PNG"),
            ([sent(make_png(padding=MAX_BYTES))], 422, "may have 20000: send a smaller one"),
            ([sent(make_png(padding=2 * MAX_BYTES))], 413, "upload images to /v1/files"),
            ([sent(PNG)] * 4, 422, "input has 4 images and may have 3: send fewer"),
            ([sent(PNG), uploaded("file_1")], 404, "file_1: upload the image to /v1/files first"),
            (
                [{"type": "image_url", "image_url": {"url": "https://host/cat.png"}}],
                422,
                "input[0].image_url.url is not fetched: upload the image to /v1/files",
            ),
            (
                [{"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}}],
                422,
                "input[0].image_url.url must be a data URL",
            ),
            (
                [{"type": "image_url", "image_url": {"url": data_url(PNG), "detail": "low"}}],
                422,
                "input[0].image_url.detail is not a known field: remove it",
            ),
            ([{"type": "video"}], 422, "input[0] must be a part with the type 'text'"),
        ],
    )
    async def test_wrong_images_are_refused_and_nothing_stays(
        self, api: Api, parts: list[Json], status: int, words: str
    ) -> None:
        check_problem(await post(api, *parts), status, words)
        assert (await count(api, Turn), await count(api, File), stored_names(api)) == (0, 0, set())

    async def test_repeated_request_stores_nothing_twice(self, api: Api) -> None:
        first = await post(api, sent(PNG), key="key")
        again = await post(api, sent(PNG), key="key")
        assert (first.status_code, again.status_code) == (202, 200)
        assert first.json() == again.json()
        check_problem(await post(api, sent(make_png(b"abc")), key="key"), 409, "use a new key")
        assert await count(api, File) == 1
        assert stored_names(api) == {first.json()["attachments"][0]["file_id"]}

    async def test_requests_with_one_key_at_once_make_one_turn(self, api: Api) -> None:
        answers = await asyncio.gather(*(post(api, sent(PNG), key="key") for _ in range(10)))
        assert sorted(answer.status_code for answer in answers) == [200] * 9 + [202]
        assert (await count(api, Turn), await count(api, File)) == (1, 1)
        assert len(stored_names(api)) == 1

    async def test_refused_turn_leaves_no_file(self, api: Api) -> None:
        turn = (await post(api, sent(PNG))).json()
        fields = {"conversation_id": turn["conversation_id"], "if_busy": "reject"}
        check_problem(await post(api, sent(PNG), **fields), 409, "has an open turn")
        check_problem(await post(api, sent(PNG), conversation_id="x"), 404, "conversation x")
        assert (await count(api, File), len(stored_names(api))) == (1, 1)


def ask(client: TurnmillClient, *parts: Json, **fields: object) -> Json:
    """Post a turn and wait for its end."""
    turn = client.call("POST", "/v1/turns", json={"input": list(parts)} | fields)
    turn = client.get_turn(turn["id"], wait_s=30)
    assert turn["status"] == "completed", turn
    return turn


def requests_of(model: ScriptedModel, case: str) -> list[ChatRequest]:
    return [call.request for call in model.calls if mentions(case)(call.request)]


def user_parts(request: ChatRequest) -> list[list[str]]:
    """Return the texts and image URLs of each user message."""
    return [
        [message.content]
        if isinstance(message.content, str)
        else [part.text or part.image_url for part in message.content or ()]
        for message in request.messages
        if message.role == "user"
    ]


class TestShowingTheModel:
    def test_images_are_seen_in_this_turn_and_the_next_and_missed_when_gone(
        self, client: TurnmillClient, shared_model: ScriptedModel, product: Product, case: str
    ) -> None:
        shared_model.when(mentions(case), Reply(text="I see."))
        file = client.call("POST", "/v1/files", files={"file": GIF})
        gif, png = data_url(GIF, "image/gif"), data_url(PNG)
        text = {"type": "text", "text": f"{case} first"}
        turn = ask(client, uploaded(file["id"]), text, sent(PNG))
        talk = {"conversation_id": turn["conversation_id"]}
        ask(client, {"type": "text", "text": f"{case} second"}, **talk)
        (product.data_dir / "files" / file["id"]).unlink()
        ask(client, {"type": "text", "text": f"{case} third"}, **talk)
        first, second, third = map(user_parts, requests_of(shared_model, case))
        lost = f"[Image {file['id']} is no longer available]"
        assert first == [[f"{case} first", gif, png]]
        assert second == [*first, [f"{case} second"]]
        assert third == [[f"{case} first", lost, png], [f"{case} second"], [f"{case} third"]]
        assert case in client.messages(turn["conversation_id"])[0]["content"]

    def test_answer_after_tools_is_written_with_the_images_in_view(
        self, client: TurnmillClient, shared_model: ScriptedModel, case: str
    ) -> None:
        shared_model.when(
            lambda request: mentions(case)(request) and bool(request.tools),
            Reply(tool_calls=(SUM,)),
            Reply(text="brief"),
        )
        shared_model.when(mentions(case), Reply(text="It is 391."))
        turn = ask(client, {"type": "text", "text": case}, sent(PNG))
        assert turn["answer"] == "It is 391."
        requests = requests_of(shared_model, case)
        assert len(requests) == 3
        for request in requests:
            assert user_parts(request)[-1][1:] == [data_url(PNG)]

    def test_image_alone_is_answered_and_stays_in_the_history(
        self, client: TurnmillClient, shared_model: ScriptedModel, case: str
    ) -> None:
        url = data_url(make_png(padding=100) + case.encode())
        shared_model.when(
            lambda request: [url] in user_parts(request),
            Reply(text=f"A {case}."),
        )
        turn = ask(client, {"type": "image_url", "image_url": {"url": url}})
        assert turn["answer"] == f"A {case}."
        again = ask(
            client,
            {"type": "text", "text": f"{case} again"},
            conversation_id=turn["conversation_id"],
        )
        assert again["answer"] == f"A {case}."
        (request,) = requests_of(shared_model, f"{case} again")
        assert user_parts(request) == [[url], [f"{case} again"]]

    def test_unknown_file_accepts_nothing(self, client: TurnmillClient) -> None:
        with pytest.raises(RefusedError, match="upload the image"):
            ask(client, uploaded("file_0"))
