"""How fast requests are measured, against a plain pass over the same text."""

import time
from collections.abc import Callable, Iterator

from workers.context.estimate import estimate_tokens

TEXTS = {
    "ASCII": "The quick brown fox jumps over the lazy dog. " * 100_000,
    "CJK": "敏捷的棕色狐狸跳过了懒狗。" * 100_000,
    "mixed": "Der schnelle braune Fuchs springt über den faulen Hund. " * 100_000,
}


def measure_estimator() -> Iterator[str]:
    """Yield a line per kind of text: speed, and time relative to encoding it as UTF-8."""
    for name, text in TEXTS.items():
        size_mb = len(text.encode()) / 1e6
        estimate_s = _best(lambda text=text: estimate_tokens(text))  # type: ignore[misc]
        encode_s = _best(lambda text=text: text.encode())  # type: ignore[misc]
        yield (
            f"estimate_tokens, {name}: {size_mb / estimate_s:,.0f} MB/s"
            f" ({estimate_s / encode_s:.2f} times encoding it)"
        )


def _best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        started_at = time.perf_counter()
        work()
        times.append(time.perf_counter() - started_at)
    return max(min(times), 1e-9)
