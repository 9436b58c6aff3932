from hypothesis import given

from tests.unit.workers.context.histories import ANY_MESSAGES, a_round, assistant, user
from workers.context.messages import Message
from workers.context.rounds import split_units


def test_a_round_is_one_unit() -> None:
    question, looked, answer = user("q"), a_round("1", "2"), assistant("a")
    assert split_units([question, *looked, answer]) == [(question,), looked, (answer,)]


def test_rounds_in_a_row_are_apart() -> None:
    first, second = a_round("1", name="x"), a_round("2", name="y")
    assert split_units([*first, *second]) == [first, second]


def test_result_without_its_call_stays_alone() -> None:
    orphan = Message(role="tool", content="r", tool_call_id="gone")
    assert split_units([user("q"), orphan]) == [(user("q"),), (orphan,)]
    looked = a_round("1")
    assert split_units([*looked, orphan]) == [looked, (orphan,)]


def test_call_without_results_stays_alone() -> None:
    asked = a_round("1")[0]
    assert split_units([asked, user("q")]) == [(asked,), (user("q"),)]


@given(ANY_MESSAGES)
def test_joined_units_are_the_messages(messages: tuple[Message, ...]) -> None:
    units = split_units(messages)
    assert tuple(message for unit in units for message in unit) == messages
