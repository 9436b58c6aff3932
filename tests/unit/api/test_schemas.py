import pytest
from pydantic import ValidationError

from api.idempotency import hash_request
from api.schemas import PostInjection, PostTurn
from shared.model_spec import ModelSpec
from tests.helpers.images import data_url, make_png


def refused(kind: type[PostTurn | ModelSpec | PostInjection], body: dict[str, object]) -> str:
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(body)
    return caught.value.errors()[0]["msg"]


def test_parts_are_joined_by_a_blank_line() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert PostTurn.model_validate({"input": parts}).text == "a\n\nb"


def test_images_come_in_order_and_are_no_text() -> None:
    png = {"type": "image_url", "image_url": {"url": data_url(make_png())}}
    file = {"type": "image_file", "image_file": {"file_id": "file_1"}}
    text = {"type": "text", "text": "a"}
    turn = PostTurn.model_validate({"input": [file, text, png, text]})
    assert turn.text == "a\n\na"
    assert [part.type for part in turn.images] == ["image_file", "image_url"]
    assert PostTurn.model_validate({"input": [png]}).text == ""


def part(kind: str, **value: object) -> dict[str, object]:
    return {"input": [{"type": kind, kind: value}]}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({}, "required"),
        ({"input": ""}, "must not be empty"),
        ({"input": " \n"}, "must not be empty"),
        ({"input": 5}, "must be a text, or a list of parts"),
        ({"input": []}, "at least 1 item"),
        ({"input": [{"type": "image", "text": "a"}]}, "'text'"),
        ({"input": ["a"]}, "'image_url'"),
        ({"input": [{"text": "a"}]}, "'image_url'"),
        ({"input": [{"type": ["text"], "text": "a"}]}, "'image_url'"),
        (part("image_url"), "required"),
        (part("image_url", url="http://host/a.png"), "/v1/files"),
        (part("image_url", url="data:image/png;base64,!"), "base64"),
        (part("image_url", url=data_url(b"text")), "must hold an image"),
        (part("image_url", url=data_url(make_png()), detail="low"), "not permitted"),
        (part("image_file", file_id=1), "valid string"),
        (part("image_file", file_id="a\0"), "NUL"),
        (part("image_file", file_id="f" * 41), "at most 40"),
        ({"input": "a\0b"}, "NUL"),
        ({"input": "a\ud800"}, "lone surrogates"),
        ({"input": "a", "colour": "red"}, "not permitted"),
        ({"input": "a", "mode": "dag"}, "'react'"),
        ({"input": "a", "if_busy": "inject"}, "'queue' or 'reject'"),
        ({"input": "a", "tools": "calculator"}, "valid list"),
        ({"input": "a", "tools": [1]}, "valid string"),
        ({"input": "a", "model": ""}, "at least 1 character"),
        ({"input": "a", "metadata": {"a": "x" * 20_000}}, "16384 bytes"),
        ({"input": "a", "metadata": {"a": {"b": ["\0"]}}}, "NUL"),
        ({"input": "a", "metadata": {"\0": 1}}, "NUL"),
        ({"input": "a", "metadata": {"a": "\udfff"}}, "valid Unicode"),
        ({"input": "a", "metadata": {"a": 2**64}}, "64 bits"),
        ({"input": "a", "metadata": {"a": float("inf")}}, "infinite"),
        ({"input": "a", "metadata": []}, "dictionary"),
    ],
)
def test_turns_that_cannot_be_accepted_are_refused(body: dict[str, object], sentence: str) -> None:
    assert sentence in refused(PostTurn, body)


def test_metadata_nested_without_end_is_refused() -> None:
    deep: dict[str, object] = {}
    for _ in range(500):
        deep = {"a": deep}
    assert "nested" in refused(PostTurn, {"input": "a", "metadata": deep})


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"api_key": "sk-secret"}, "not permitted"),
        ({"api_key_env": "sk-secret"}, "pattern"),
        ({"api_key_env": "PATH"}, "pattern"),
        ({"base_url": "ftp://host"}, "must be a URL"),
        ({"base_url": "https://user:key@host/v1"}, "api_key_env"),
        ({"base_url": "http://[::1"}, "must be a URL"),
        ({"role": "owl"}, "'main'"),
        ({"context_size": "8000"}, "valid integer"),
        ({"context_size": 8_000, "max_output_tokens": 8_000}, "less than context_size"),
    ],
)
def test_models_that_make_no_sense_are_refused(body: dict[str, object], sentence: str) -> None:
    assert sentence in refused(ModelSpec, body)


def test_requests_that_ask_for_the_same_share_a_hash() -> None:
    first = PostTurn.model_validate({"input": "a", "metadata": {"x": 1, "y": 2}})
    same = PostTurn.model_validate({"mode": "react", "metadata": {"y": 2, "x": 1}, "input": "a"})
    other = PostTurn.model_validate({"input": "b"})
    assert hash_request(first) == hash_request(same) != hash_request(other)


def test_images_are_part_of_the_hash() -> None:
    red, blue = (data_url(make_png(colour)) for colour in (b"\xff\0\0", b"\0\0\xff"))
    first, same, other = (
        PostTurn.model_validate(part("image_url", url=url)) for url in (red, red, blue)
    )
    assert hash_request(first) == hash_request(same) != hash_request(other)
