import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.context.shape import Shape, shape_of


@pytest.mark.parametrize(
    ("text", "ascii_tokens", "other_tokens"),
    [
        ("", 0, 0),
        ("word word ", 2, 0),
        ("12.5", 4 * 0.62, 0),
        ("a\nb", 1.4, 0),
        ("é", 0, 1.6),
        ("Привет", 0, 6 * 0.4),
        ("γεια", 0, 4 * 0.4),
        ("漢字かな。", 0, 5 * 0.85),
        ("한국", 0, 2 * 1.4),
        ("🙂", 0, 1.4),
        ("a 漢", 0.4, 0.85),
        ("\ud800", 0.62, 0),
        ("\0", 0.2, 0),
    ],
)
def test_weights(text: str, ascii_tokens: float, other_tokens: float) -> None:
    shape = shape_of(text)
    assert (shape.ascii, shape.other) == pytest.approx((ascii_tokens, other_tokens))


def test_shapes_add_up() -> None:
    one, two = Shape(1, 2, 3, 4), Shape(10, 20, 30, 40)
    assert one + two == Shape(11, 22, 33, 44)


@given(st.text(), st.text())
def test_a_text_weighs_what_its_parts_do(one: str, two: str) -> None:
    whole, parts = shape_of(one + two), shape_of(one) + shape_of(two)
    assert (whole.ascii, whole.other) == pytest.approx((parts.ascii, parts.other))


@given(st.text(min_size=1))
def test_every_character_weighs_something(text: str) -> None:
    shape = shape_of(text)
    assert 0.2 * len(text) - 1e-6 <= shape.ascii + shape.other <= 1.6 * len(text) + 1e-6
