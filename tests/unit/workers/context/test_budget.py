import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.context.budget import Budget
from workers.model.values import ModelTarget


def budget_of(context_size: int, max_output_tokens: int) -> Budget:
    return Budget.of(
        ModelTarget(
            name="m",
            base_url="http://model",
            api_key="k",
            context_size=context_size,
            max_output_tokens=max_output_tokens,
        ),
    )


@pytest.mark.parametrize(
    ("context_size", "max_output_tokens", "usable"),
    [
        (128_000, 64_000, 64_000),
        (200_000, 8_000, 192_000),
        # an output limit that leaves nothing becomes a quarter
        (32_000, 32_000, 24_000),
        (32_000, 64_000, 24_000),
        # the floor: the answer's reserve shrinks
        (8_000, 6_000, 4_000),
        # but the floor is at most three quarters of the window
        (4_000, 3_500, 3_000),
        (1_000, 64_000, 750),
    ],
)
def test_usable(context_size: int, max_output_tokens: int, usable: int) -> None:
    assert budget_of(context_size, max_output_tokens).usable == usable


@pytest.mark.parametrize(
    ("prompt_tokens", "max_tokens"),
    [(0, 6_000), (2_000, 6_000), (3_000, 5_000), (7_999, 1), (9_000, 1)],
)
def test_answer_gets_what_the_prompt_leaves(prompt_tokens: int, max_tokens: int) -> None:
    assert budget_of(8_000, 6_000).max_tokens_for(prompt_tokens) == max_tokens


@given(st.integers(1_000, 2_000_000), st.integers(1, 2_000_000))
def test_prompt_and_answer_always_fit_the_window(context_size: int, output_tokens: int) -> None:
    budget = budget_of(context_size, output_tokens)
    assert 0 < budget.usable < context_size
    assert budget.usable >= min(4_000, context_size * 3 // 4)
    assert budget.usable + budget.max_tokens_for(budget.usable) <= context_size
