"""Identifiers: a prefix per kind, unique, and in order of creation."""

import itertools
import re
import time
import uuid
from collections.abc import Callable
from functools import partial

import pytest

from shared import ids
from tests.helpers.waiting import wait_until

MAKERS: dict[str, Callable[[], str]] = {
    "conv_": ids.new_conversation_id,
    "turn_": ids.new_turn_id,
    "msg_": ids.new_message_id,
    "inj_": ids.new_injection_id,
    "tool_": ids.new_tool_call_id,
    "file_": ids.new_file_id,
}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def is_later_than(time_ms: int) -> bool:
    return now_ms() > time_ms


@pytest.mark.parametrize(("prefix", "make"), MAKERS.items(), ids=MAKERS)
def test_id_is_its_prefix_and_32_digits(prefix: str, make: Callable[[], str]) -> None:
    assert re.fullmatch(rf"{prefix}[0-9a-f]{{32}}", make())


def test_uuid_is_of_version_7_and_holds_the_time() -> None:
    before_ms = now_ms()
    value = uuid.UUID(hex=ids.uuid7_hex())
    after_ms = now_ms()

    assert value.version == 7
    assert value.variant == uuid.RFC_4122
    assert before_ms <= value.int >> 80 <= after_ms


def test_ids_are_unique() -> None:
    assert len({ids.new_turn_id() for _ in range(10_000)}) == 10_000


def test_ids_of_later_milliseconds_sort_later() -> None:
    made = []
    for _ in range(5):
        made.append(ids.new_turn_id())
        wait_until(partial(is_later_than, now_ms()), message="a tick of the clock")

    assert all(earlier < later for earlier, later in itertools.pairwise(made))
