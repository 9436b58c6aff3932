from collections.abc import Iterable, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.workers.context.histories import ANY_MESSAGES, a_round, assistant, user
from workers.context.estimate import estimate_messages
from workers.context.messages import Message
from workers.context.rounds import split_units
from workers.context.truncate import is_protected, smart_truncate


def system(text: str) -> Message:
    return Message(role="system", content=text)


def ids(messages: Iterable[Message]) -> list[int]:
    return [id(message) for message in messages]


def is_subsequence(part: Sequence[Message], whole: Sequence[Message]) -> bool:
    rest = iter(ids(whole))
    return all(one in rest for one in ids(part))


def test_nothing_stays_nothing() -> None:
    assert smart_truncate([], 100) == ()


def test_what_fits_stays_in_order() -> None:
    messages = (system("s"), user("q"), assistant("a"), user("q2"))
    assert smart_truncate(messages, 1_000) == messages


def test_newest_messages_survive() -> None:
    messages = [
        user(f"{number} " * 20) if number % 2 else assistant(f"{number} " * 20)
        for number in range(50)
    ]
    kept = smart_truncate(messages, 200)
    assert 0 < len(kept) < 50
    assert kept[-1] is messages[-1]
    assert kept[0].role == "user"


def test_pinned_and_system_survive_any_budget() -> None:
    stays = (system("s" * 400), user("p" * 400, pinned=True))
    assert smart_truncate((stays[0], user("x"), stays[1]), 0) == stays


def test_pinned_and_a_short_reply_fit_a_large_budget() -> None:
    messages = (user("p", pinned=True), assistant("short"))
    assert smart_truncate(messages, 1_000) == messages


def test_pinned_message_keeps_its_place() -> None:
    pinned = user("p", pinned=True)
    messages = (user("old " * 500), pinned, assistant("a"), user("q"))
    assert smart_truncate(messages, 100) == messages[1:]


def test_no_gap_before_a_smaller_older_message() -> None:
    messages = (user("small"), assistant("large " * 500), user("q"), assistant("a"))
    assert smart_truncate(messages, 100) == messages[2:]


def test_rounds_stay_whole() -> None:
    query, old, new = user("q", pinned=True), a_round("r" * 40, "r" * 40), a_round("n", name="n")
    messages = (query, *old, *new)
    budget = estimate_messages(messages) - 1
    assert smart_truncate(messages, budget) == (query, *new)


def test_round_with_a_pinned_result_stays_whole() -> None:
    asked, *results = a_round("1", "2")
    messages = (user("q"), asked, replace(results[0], pinned=True), results[1], user("q2"))
    assert smart_truncate(messages, 0) == messages[1:4]


def test_begins_with_a_user_message_even_if_all_fits() -> None:
    messages = (system("s"), assistant("a"), *a_round("r"), user("q"))
    assert smart_truncate(messages, 1_000) == (messages[0], messages[-1])


@given(ANY_MESSAGES, st.integers(0, 10_000))
def test_properties(messages: tuple[Message, ...], budget_tokens: int) -> None:
    copies = [replace(message) for message in messages]
    kept = smart_truncate(messages, budget_tokens)
    units, kept_units = split_units(messages), split_units(kept)

    assert list(messages) == copies
    assert is_subsequence(kept, messages)
    assert {ids(unit)[0]: len(unit) for unit in kept_units}.items() <= {
        ids(unit)[0]: len(unit) for unit in units
    }.items()
    protected = [unit for unit in units if is_protected(unit)]
    assert [unit for unit in kept_units if is_protected(unit)] == protected
    is_small = estimate_messages(kept) <= budget_tokens
    assert is_small or all(is_protected(unit) for unit in kept_units)
    talk = [message for message in kept if message.role != "system"]
    assert not talk or talk[0].role == "user" or talk[0].pinned
    free = [unit for unit in units if not is_protected(unit)]
    kept_free = [unit for unit in kept_units if not is_protected(unit)]
    assert kept_free == free[len(free) - len(kept_free) :]


@given(ANY_MESSAGES, st.integers(0, 10_000))
def test_truncating_again_changes_nothing(
    messages: tuple[Message, ...],
    budget_tokens: int,
) -> None:
    kept = smart_truncate(messages, budget_tokens)
    assert smart_truncate(kept, budget_tokens) == kept
