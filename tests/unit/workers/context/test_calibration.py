from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.context.calibration import (
    CAUTIOUS,
    MARGIN,
    MAX_SAMPLES,
    Factors,
    Sample,
    fit_factors,
    is_telling,
)
from workers.context.shape import Shape


def samples_of(ascii_factor: float, other_factor: float, count: int = 3) -> list[Sample]:
    shapes = [(400.0 + 90 * at, 100.0 + 70 * (at % 3)) for at in range(count)]
    return [Sample(a, b, 0, round(a * ascii_factor + b * other_factor)) for a, b in shapes]


def test_three_calls_are_enough_for_both_kinds_of_text() -> None:
    samples = samples_of(0.8, 1.5)
    factors = fit_factors(samples)
    for sample in samples:
        counted = factors.tokens(Shape(sample.ascii, sample.other))
        assert counted == pytest.approx(sample.tokens * MARGIN, rel=0.03)


@pytest.mark.parametrize("shown", [0.5, 1.0])
def test_what_a_provider_makes_of_tools_says_nothing_of_text(shown: float) -> None:
    """Three calls with many tools and little text; then the conversation grows."""
    tools = 600
    samples = [Sample(text, 0, tools, round(text + shown * tools)) for text in (90, 180, 400)]
    grown = fit_factors(samples).tokens(Shape(ascii=9_000, tools=tools))
    assert 1.0 <= grown / (9_000 + shown * tools) <= 1.15


def test_text_in_a_script_not_seen_is_still_counted_with_caution() -> None:
    factors = fit_factors([Sample(500, 0, 0, 400)] * 5)
    assert factors.ascii == pytest.approx(0.8 * MARGIN, rel=0.03)
    assert factors.other == pytest.approx(CAUTIOUS.other)


@pytest.mark.parametrize("slip", [1, 30, 4_000, 10**9])
def test_one_slip_of_the_provider_changes_nothing(slip: int) -> None:
    good = samples_of(0.9, 1.1, count=6)
    assert fit_factors([*good, Sample(500, 50, 0, slip)]) == fit_factors(good)


def test_newest_samples_count() -> None:
    old, new = samples_of(2.0, 2.0, count=40), samples_of(1.0, 1.0, count=MAX_SAMPLES)
    assert fit_factors([*old, *new]) == fit_factors(new)


def test_nothing_seen_is_the_prior() -> None:
    factors = fit_factors([])
    assert astuple(factors) == pytest.approx(astuple(CAUTIOUS))


def test_tokens_are_rounded_up_and_images_are_not_scaled() -> None:
    factors = Factors(2.0, 3.0, 0.5)
    assert factors.tokens(Shape(1.2, 1.1, fixed=765)) == 771
    assert factors.tokens(Shape(1.2, 1.1, tools=10)) == 11
    assert factors.tokens(Shape(0.01)) == 1
    assert factors.tokens(Shape()) == 0


def test_small_and_empty_prompts_say_nothing() -> None:
    assert not is_telling(Sample(20, 10, 10, 40))
    assert not is_telling(Sample(500, 0, 0, 0))
    assert is_telling(Sample(30, 20, 10, 70))


@given(
    st.lists(
        st.builds(
            Sample,
            st.floats(0, 1e6),
            st.floats(50, 1e6),
            st.floats(0, 1e6),
            st.integers(1, 10**7),
        ),
        max_size=40,
    )
)
def test_factors_stay_within_reason(samples: list[Sample]) -> None:
    factors = fit_factors(samples)
    for factor in astuple(factors):
        assert 0.3 * MARGIN <= factor <= 5.0 * MARGIN
