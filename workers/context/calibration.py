"""What was learned of a model's tokenizer from the prompt sizes that its provider reported."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from workers.context.shape import Shape

# The newest samples that are looked at.
MAX_SAMPLES = 32
# Estimates are this much above what was seen: too low is refused, too high only compacts early.
MARGIN = 1.08
# Weight of what is believed before anything was seen, in samples.
PRIOR_WEIGHT = 0.05
# A sample further than this from the middle one, up or down, is a provider's slip.
MAX_DEVIATION = 2.0
MIN_FACTOR, MAX_FACTOR = 0.3, 5.0
# Smaller prompts say more about a provider's wrapping than about its tokenizer.
MIN_SAMPLE_TOKENS = 50


@dataclass(frozen=True, slots=True)
class Factors:
    """What a shape is multiplied by for one model."""

    ascii: float
    other: float

    def tokens(self, shape: Shape) -> int:
        """Return the tokens that a text of this shape is expected to have, rounded up."""
        return -int(-(self.ascii * shape.ascii + self.other * shape.other + shape.fixed) // 1)


# For a model that nothing is known of: above all four tokenizers that were measured.
PRIOR = Factors(1.07, 1.2)
CAUTIOUS = Factors(PRIOR.ascii * MARGIN, PRIOR.other * MARGIN)


@dataclass(frozen=True, slots=True)
class Sample:
    """One prompt: its shape, and the size its provider reported."""

    ascii: float
    other: float
    tokens: int

    @property
    def ratio(self) -> float:
        """Tokens reported per token of the shape."""
        return self.tokens / (self.ascii + self.other)


def is_telling(sample: Sample) -> bool:
    """Whether a sample says anything about the tokenizer."""
    return sample.ascii + sample.other >= MIN_SAMPLE_TOKENS and sample.tokens > 0


def fit_factors(samples: Sequence[Sample]) -> Factors:
    """Return the factors that explain the samples best, with the margin.

    samples: oldest first; the newest MAX_SAMPLES count.
    Least squares of the relative error in two unknowns, held near PRIOR where the samples say
    nothing, so that text in a script not seen before is still counted with caution.
    """
    seen = _without_slips(samples[-MAX_SAMPLES:])
    a_a = b_b = PRIOR_WEIGHT
    a_b = 0.0
    a_t, b_t = PRIOR_WEIGHT * PRIOR.ascii, PRIOR_WEIGHT * PRIOR.other
    for sample in seen:
        a, b = sample.ascii / sample.tokens, sample.other / sample.tokens
        a_a, a_b, b_b = a_a + a * a, a_b + a * b, b_b + b * b
        a_t, b_t = a_t + a, b_t + b
    determinant = a_a * b_b - a_b * a_b
    return Factors(
        _bounded((a_t * b_b - b_t * a_b) / determinant),
        _bounded((a_a * b_t - a_b * a_t) / determinant),
    )


def _without_slips(samples: Sequence[Sample]) -> list[Sample]:
    if not samples:
        return []
    middle = median(sample.ratio for sample in samples)
    return [
        sample
        for sample in samples
        if middle / MAX_DEVIATION <= sample.ratio <= middle * MAX_DEVIATION
    ]


def _bounded(factor: float) -> float:
    return min(max(factor, MIN_FACTOR), MAX_FACTOR) * MARGIN
