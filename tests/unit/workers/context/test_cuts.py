from hypothesis import given
from hypothesis import strategies as st

from tests.unit.workers.context.histories import TEXTS, USERS, a_round, assistant, user
from workers.context.cuts import MARK, MAX_CHARS, cap_message, cut_end, cut_middle, shrink
from workers.context.estimate import estimate_message, estimate_messages, estimate_tokens
from workers.context.messages import ImagePart, Message, TextPart


def test_cut_end_keeps_the_limit_and_says_so() -> None:
    cut = cut_end("a" * 200, 100)
    assert len(cut) == 100
    assert cut == "a" * 89 + "[Truncated]"
    assert cut_end("a" * 100, 100) == "a" * 100


def test_cut_middle_keeps_head_and_tail() -> None:
    cut = cut_middle("head" + "x" * 10_000 + "tail", 100)
    assert cut.startswith("head")
    assert cut.endswith("tail")
    assert f"\n{MARK}\n" in cut
    assert estimate_tokens(cut) == 100


def test_cut_middle_without_room_leaves_the_mark() -> None:
    assert cut_middle("x" * 1_000, 0) == MARK
    assert cut_middle("x" * 1_000, -5) == MARK


@given(TEXTS, st.integers(3, 3_000))
def test_cut_middle_fits(text: str, max_tokens: int) -> None:
    cut = cut_middle(text, max_tokens)
    assert estimate_tokens(cut) <= max_tokens
    assert cut == text or MARK in cut


def test_cap_leaves_a_message_alone() -> None:
    message = user("a" * MAX_CHARS)
    assert cap_message(message) is message


def test_cap_keeps_pin_ids_and_origin() -> None:
    message = Message(
        role="tool",
        content="漢" * 60_000,
        tool_call_id="c",
        pinned=True,
        origin="injection",
    )
    capped = cap_message(message)
    assert len(capped.text) == MAX_CHARS
    assert capped.text.endswith(MARK)
    assert (capped.pinned, capped.tool_call_id, capped.origin) == (True, "c", "injection")


def test_cap_cuts_text_but_no_image() -> None:
    image = ImagePart(url="data:image/png;base64," + "A" * 100_000)
    small = Message(role="user", content=(TextPart(text="t"), image))
    assert cap_message(small) is small
    parts = (TextPart(text="a" * 49_999), image, TextPart(text="b" * 10), image)
    capped = cap_message(Message(role="user", content=parts))
    assert isinstance(capped.content, tuple)
    assert len(capped.text) == MAX_CHARS
    assert capped.text.endswith(MARK)
    assert capped.content[1:] == (image, image)


def test_shrink_cuts_the_largest_only() -> None:
    small, large = user("small"), user("x" * 8_000)
    kept, cut = shrink([small, large], 500)
    assert kept is small
    assert MARK in cut.text
    assert 490 < estimate_messages([kept, cut]) <= 500


def test_shrink_shares_a_room() -> None:
    first, second = shrink([user("x" * 8_000), user("y" * 9_000)], 500)
    assert abs(estimate_message(first) - estimate_message(second)) <= 1


def test_shrink_leaves_what_has_no_text() -> None:
    image = Message(role="user", content=(ImagePart(url="u"),))
    asked = a_round("r")[0]
    assert shrink([image, asked, assistant("")], 0) == [image, asked, assistant("")]


@given(st.lists(USERS, max_size=5), st.integers(0, 5_000))
def test_shrink_fits_unless_nothing_is_left_to_cut(messages: list[Message], room: int) -> None:
    shrunk = shrink(messages, room)
    least = estimate_messages(shrink(messages, 0))
    assert len(shrunk) == len(messages)
    assert estimate_messages(shrunk) <= max(room, least)
