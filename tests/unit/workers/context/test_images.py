"""Images in requests: data URLs where the bytes are there, a sentence where they are not."""

from dataclasses import replace
from pathlib import Path

import pytest

from shared.attachment import Attachment
from shared.file_store import FileStore
from shared.ids import FileId
from tests.helpers.images import data_url, make_png
from tests.unit.workers.model.requests import REQUEST
from workers.context.images import attach, load_images
from workers.context.messages import Message, StoredImage, TextPart
from workers.model.request_body import encode_body
from workers.model.values import ModelRequest

CAT = Attachment(file_id=FileId("file_cat"), mime_type="image/png")
DOG = Attachment(file_id=FileId("file_dog"), mime_type="image/jpeg")


@pytest.fixture
async def files(tmp_path: Path) -> FileStore:
    store = FileStore(tmp_path)
    await store.write(CAT.file_id, make_png())
    return store


def request_of(text: str, *attachments: Attachment) -> ModelRequest:
    query = Message(role="user", content=attach(text, attachments), origin="query")
    return replace(REQUEST, messages=(*REQUEST.messages, query))


async def wire_content(request: ModelRequest, files: FileStore) -> object:
    return (await load_images(request, files)).messages[-1].to_wire()["content"]


def test_text_alone_stays_a_text() -> None:
    assert attach("text", ()) == "text"


def test_images_follow_the_text_in_order() -> None:
    images = tuple(StoredImage(file_id=x.file_id, mime_type=x.mime_type) for x in (CAT, DOG))
    assert attach("text", (CAT, DOG)) == (TextPart(text="text"), *images)
    assert attach("", (CAT, DOG)) == images


async def test_bytes_become_a_data_url(files: FileStore) -> None:
    assert await wire_content(request_of("What?", CAT), files) == [
        {"type": "text", "text": "What?"},
        {"type": "image_url", "image_url": {"url": data_url(make_png())}},
    ]


async def test_missing_file_is_a_sentence_in_its_place(files: FileStore) -> None:
    assert await wire_content(request_of("", DOG, CAT), files) == [
        {"type": "text", "text": "[Image file_dog is no longer available]"},
        {"type": "image_url", "image_url": {"url": data_url(make_png())}},
    ]


async def test_unreadable_file_is_a_sentence_too(files: FileStore, tmp_path: Path) -> None:
    (tmp_path / DOG.file_id).mkdir()
    content = await wire_content(request_of("", DOG), files)
    assert content == [{"type": "text", "text": "[Image file_dog is no longer available]"}]


async def test_same_files_give_the_same_bytes(files: FileStore) -> None:
    request = request_of("What?", CAT, DOG)
    first, second = [encode_body(await load_images(request, files)) for _ in range(2)]
    assert first == second


async def test_request_without_images_stays_as_it_is(files: FileStore) -> None:
    assert await load_images(REQUEST, files) == REQUEST
