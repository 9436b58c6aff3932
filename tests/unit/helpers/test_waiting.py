"""Waiting returns what the condition returned, or says what was waited for."""

import asyncio

import pytest

from tests.helpers.waiting import wait_until, wait_until_async


def test_first_true_value_is_returned() -> None:
    values = iter([0, None, "found"])

    assert wait_until(lambda: next(values), message="a value") == "found"


def test_message_says_how_far_things_got() -> None:
    with pytest.raises(TimeoutError, match=r"after 0.05 s: 3 of 4"):
        wait_until(lambda: False, timeout_s=0.05, message=lambda: "3 of 4")


async def test_event_loop_stays_free_while_waiting() -> None:
    flag = asyncio.Event()
    asyncio.get_running_loop().call_later(0.03, flag.set)

    assert await wait_until_async(flag.is_set, message="the flag")


async def test_condition_may_be_async() -> None:
    async def never() -> bool:
        return False

    with pytest.raises(TimeoutError, match="the impossible"):
        await wait_until_async(never, timeout_s=0.05, message="the impossible")
