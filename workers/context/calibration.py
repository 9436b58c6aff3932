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
    tools: float

    def tokens(self, shape: Shape) -> int:
        """Return the tokens that a text of this shape is expected to have, rounded up."""
        text = self.ascii * shape.ascii + self.other * shape.other + self.tools * shape.tools
        return -int(-(text + shape.fixed) // 1)


# For a model that nothing is known of: above nearly all that four tokenizers were measured at.
PRIOR = Factors(1.07, 1.2, 1.0)
CAUTIOUS = Factors(PRIOR.ascii * MARGIN, PRIOR.other * MARGIN, PRIOR.tools * MARGIN)


@dataclass(frozen=True, slots=True)
class Sample:
    """One prompt: its shape, and the size its provider reported."""

    ascii: float
    other: float
    tools: float
    tokens: int

    @property
    def size(self) -> float:
        """Tokens of the shape."""
        return self.ascii + self.other + self.tools

    @property
    def ratio(self) -> float:
        """Tokens reported per token of the shape."""
        return self.tokens / self.size


def is_telling(sample: Sample) -> bool:
    """Whether a sample says anything about the tokenizer."""
    return sample.size >= MIN_SAMPLE_TOKENS and sample.tokens > 0


def fit_factors(samples: Sequence[Sample]) -> Factors:
    """Return the factors that explain the samples best, with the margin.

    samples: oldest first; the newest MAX_SAMPLES count.
    Least squares of the relative error in three unknowns, held near PRIOR where the samples say
    nothing, so that text in a script not seen before is still counted with caution.
    """
    priors = (PRIOR.ascii, PRIOR.other, PRIOR.tools)
    matrix = [[PRIOR_WEIGHT * (row == column) for column in range(3)] for row in range(3)]
    vector = [PRIOR_WEIGHT * prior for prior in priors]
    for sample in _without_slips(samples[-MAX_SAMPLES:]):
        parts = [part / sample.tokens for part in (sample.ascii, sample.other, sample.tools)]
        for row, part in enumerate(parts):
            vector[row] += part
            for column, other in enumerate(parts):
                matrix[row][column] += part * other
    return Factors(*map(_bounded, _solve(matrix, vector)))


def _solve(matrix: list[list[float]], vector: list[float]) -> list[float]:
    """Solve linear equations with a symmetric, positive definite matrix, both used up."""
    size = len(vector)
    for pivot in range(size):
        for row in range(pivot + 1, size):
            ratio = matrix[row][pivot] / matrix[pivot][pivot]
            vector[row] -= ratio * vector[pivot]
            for column in range(pivot, size):
                matrix[row][column] -= ratio * matrix[pivot][column]
    for pivot in reversed(range(size)):
        vector[pivot] /= matrix[pivot][pivot]
        for row in range(pivot):
            vector[row] -= matrix[row][pivot] * vector[pivot]
    return vector


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
