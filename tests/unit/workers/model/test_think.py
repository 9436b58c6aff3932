import pytest

from workers.model.think import ThinkFilter


def read(*pieces: str) -> tuple[str, str]:
    reader = ThinkFilter()
    parts = [reader.feed(piece) for piece in pieces]
    parts.append(reader.finish())
    return "".join(part[0] for part in parts), "".join(part[1] for part in parts)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("<think>hm</think>yes", ("hm", "yes")),
        ("\n <think>\nhm\n</think>\n\nyes", ("\nhm\n", "yes")),
        ("<think>a</think>\n<think>b</think> yes", ("ab", "yes")),
        ("<think></think>yes", ("", "yes")),
        ("<think>only this</think>", ("only this", "")),
        ("<think>only this</think>\n\n", ("only this", "")),
        ("<think>never closed </thi", ("never closed </thi", "")),
        ("<think>1 < 2 </ b</think>yes", ("1 < 2 </ b", "yes")),
        ("no thoughts", ("", "no thoughts")),
        ("  indented", ("", "  indented")),
        ("<thinking> aloud", ("", "<thinking> aloud")),
        ("<thi", ("", "<thi")),
        ("use <think>x</think> here", ("", "use <think>x</think> here")),
        ("<think>a</think>b<think>c</think>", ("a", "b<think>c</think>")),
        ("   ", ("", "   ")),
        ("", ("", "")),
    ],
)
def test_blocks_at_the_start_are_reasoning_however_they_are_cut(
    content: str,
    expected: tuple[str, str],
) -> None:
    assert read(content) == expected
    assert read(*content) == expected
    for cut in range(len(content)):
        assert read(content[:cut], content[cut:]) == expected


def test_text_is_not_held_back_once_no_block_can_begin() -> None:
    reader = ThinkFilter()
    assert reader.feed("a") == ("", "a")
    assert reader.feed(" <") == ("", " <")


def test_thoughts_are_not_held_back_further_than_a_tag() -> None:
    reader = ThinkFilter()
    assert reader.feed("<think>long thought </") == ("long thought ", "")


def test_settling_inside_a_block_changes_nothing() -> None:
    reader = ThinkFilter()
    reader.feed("<think>a")
    assert reader.settle() == ""
    assert reader.feed("b</think>c") == ("b", "c")
