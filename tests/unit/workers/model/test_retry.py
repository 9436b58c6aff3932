"""Which calls are made again, and when."""

import pytest

from shared.errors import (
    ContextLengthError,
    ModelAuthenticationError,
    ModelError,
    ModelRateLimitError,
    ModelRequestError,
    ModelStreamError,
    ModelTimeoutError,
    ModelUnavailableError,
    UnsupportedParameterError,
)
from workers.model.retry import Retry

RETRY = Retry(max_retries=3, base_s=1.0, cap_s=5.0)


def asked_to_wait(seconds: float) -> ModelError:
    error = ModelRateLimitError()
    error.retry_after_s = seconds
    return error


@pytest.mark.parametrize("kind", [ModelRateLimitError, ModelTimeoutError, ModelUnavailableError])
def test_what_may_pass_is_tried_again_a_bounded_number_of_times(kind: type[ModelError]) -> None:
    pauses = [RETRY.pause_s(retries, kind()) for retries in range(4)]
    assert pauses[3] is None
    assert all(pause is not None for pause in pauses[:3])


@pytest.mark.parametrize(
    "kind",
    [
        ModelAuthenticationError,
        ModelRequestError,
        UnsupportedParameterError,
        ContextLengthError,
        # An answer that began is the reader's to ask for again.
        ModelStreamError,
    ],
)
def test_what_stays_wrong_is_not(kind: type[ModelError]) -> None:
    assert RETRY.pause_s(0, kind()) is None


def test_pauses_are_random_and_bounded() -> None:
    for retries, longest in ((0, 1.0), (1, 2.0), (2, 4.0)):
        pauses = [RETRY.pause_s(retries, ModelUnavailableError()) or 0.0 for _ in range(200)]
        assert longest / 2 < max(pauses) <= longest
        assert min(pauses) < longest / 2
    assert max(RETRY.jitter_s(10) for _ in range(200)) <= RETRY.cap_s


def test_provider_says_when() -> None:
    assert RETRY.pause_s(0, asked_to_wait(2.5)) == 2.5
    assert RETRY.pause_s(0, asked_to_wait(0.0)) == 0.0


def test_provider_that_asks_for_too_long_a_pause_is_not_asked_again() -> None:
    assert RETRY.pause_s(0, asked_to_wait(5.1)) is None


def test_no_retries_at_all() -> None:
    never = Retry(max_retries=0, base_s=1.0, cap_s=5.0)
    assert never.pause_s(0, ModelUnavailableError()) is None
