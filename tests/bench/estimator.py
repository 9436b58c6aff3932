"""How fast requests are measured, against a plain pass over the same text."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

from tests.bench.measured import Measured
from workers.context.estimate import estimate_tokens
from workers.context.shape import shape_of

TEXTS = {
    "ASCII": "The quick brown fox jumps over the lazy dog. " * 100_000,
    "CJK": "敏捷的棕色狐狸跳过了懒狗。" * 100_000,
    "mixed": "Der schnelle braune Fuchs springt über den faulen Hund. " * 100_000,
}
MIN_MB_PER_S = {"ASCII": 500, "CJK": 50, "mixed": 50}


def measure_estimator() -> Iterator[Measured]:
    """Yield the speed of both ways to count, and their time relative to encoding as UTF-8."""
    for count, (name, text) in product((estimate_tokens, shape_of), TEXTS.items()):
        size_mb = len(text.encode()) / 1e6
        count_s = best_of(5, partial(count, text))
        encode_s = best_of(5, text.encode)
        speed = size_mb / count_s
        yield Measured(
            f"{count.__name__}, {name}: {speed:,.0f} MB/s ({count_s / encode_s:.2f} times"
            f" encoding it; at least {MIN_MB_PER_S[name]} MB/s)",
            holds=speed >= MIN_MB_PER_S[name],
        )


def best_of(tries: int, work: Callable[[], object]) -> float:
    """Return the seconds of the fastest run."""
    times = []
    for _ in range(tries):
        started_at = time.perf_counter()
        work()
        times.append(time.perf_counter() - started_at)
    return max(min(times), 1e-9)
