from collections.abc import Iterator

import orjson
import pytest

from api.problems import RETRY_AFTER_S, STATUSES, describe_error, status_of, unexpected_response
from shared.database import StorageError
from shared.errors import (
    IdempotencyMismatchError,
    InvalidInputError,
    NotFoundError,
    TurnEndedError,
    TurnmillError,
    UnavailableError,
)


def all_errors(kind: type[TurnmillError] = TurnmillError) -> Iterator[type[TurnmillError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from all_errors(child)


ALL = list(dict.fromkeys(all_errors()))


@pytest.mark.parametrize("kind", ALL)
def test_every_error_has_a_status_and_a_whole_body(kind: type[TurnmillError]) -> None:
    response = describe_error("/v1/turns", kind())
    body = orjson.loads(bytes(response.body))
    assert response.status_code == status_of(kind()) >= 400
    assert response.media_type == "application/problem+json"
    assert body["status"] == response.status_code
    assert body["code"] == kind.code == body["error"]["code"]
    assert body["detail"] == body["error"]["message"] != ""
    assert body["title"]
    assert body["instance"] == "/v1/turns"


def test_only_the_root_and_what_is_ours_is_a_500() -> None:
    assert status_of(InvalidInputError()) == 422
    assert status_of(NotFoundError()) == 404
    assert status_of(IdempotencyMismatchError()) == 409
    assert status_of(StorageError()) == 503
    assert TurnmillError in STATUSES


def test_unavailable_says_when_to_come_back() -> None:
    response = describe_error("/", UnavailableError("Redis is away: try again"))
    assert response.headers["retry-after"] == str(RETRY_AFTER_S)


def test_words_of_the_database_driver_stay_inside() -> None:
    error = StorageError('The database cannot be used now: connection to server at "10.1.2.3"')
    assert b"10.1.2.3" not in bytes(describe_error("/", error).body)


def test_internal_errors_tell_nothing_of_themselves() -> None:
    body = bytes(describe_error("/", TurnmillError("secret")).body)
    assert b"secret" not in body
    assert orjson.loads(bytes(unexpected_response("/").body))["code"] == "internal_error"


def test_ended_turn_tells_its_status() -> None:
    body = orjson.loads(bytes(describe_error("/", TurnEndedError("It ended", "failed")).body))
    assert body["status_of_turn"] == "failed"
    assert body["status"] == 409
