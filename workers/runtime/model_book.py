"""What this process knows of models' tokenizers, windows and parameters, shared with all others.

A turn's load reads what the others wrote; what is learned here is written at most every few
seconds, since one row serves all turns of a model.
"""

import asyncio
from dataclasses import dataclass, field, replace

import structlog

from shared.database import Database, StorageError
from shared.repositories import token_factors
from shared.repositories.token_factors import Learned, ModelKey
from workers.context.calibration import (
    CAUTIOUS,
    MAX_SAMPLES,
    Factors,
    Sample,
    fit_factors,
    is_telling,
)
from workers.model.parameters import PARAMETERS, Parameter
from workers.model.values import ModelTarget

log = structlog.get_logger()

# Between two writes; the first samples of a model are written at once.
SAVE_PAUSE_S = 5.0


@dataclass(slots=True)
class _Known:
    stored: Learned = field(default_factory=Learned)
    # Not written yet.
    unsaved: list[Sample] = field(default_factory=list)
    unsaved_window: int | None = None
    unsaved_refused: frozenset[Parameter] = frozenset()
    factors: Factors = CAUTIOUS

    def refit(self) -> None:
        samples = [Sample(*sample) for sample in self.stored.samples] + self.unsaved
        self.factors = fit_factors(samples) if samples else CAUTIOUS


class ModelBook:
    """Factors, windows and parameters of models. Belongs to the event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[ModelKey, _Known] = {}
        self._has_news = asyncio.Event()

    def factors(self, target: ModelTarget) -> Factors:
        """Return what a model's shapes are multiplied by."""
        return self._of(target).factors

    def learn(self, target: ModelTarget, sample: Sample) -> None:
        """Take in the size that a provider reported."""
        if not is_telling(sample):
            return
        known = self._of(target)
        known.unsaved.append(sample)
        del known.unsaved[:-MAX_SAMPLES]
        known.refit()
        self._has_news.set()

    def learn_window(self, target: ModelTarget, context_size: int) -> None:
        """Take in the window that a provider stated."""
        self._of(target).unsaved_window = context_size
        self._has_news.set()

    def refused(self, target: ModelTarget) -> frozenset[Parameter]:
        """Return the parameters that a model's provider does not know."""
        known = self._of(target)
        # Another version may know of more.
        stored = (name for name in PARAMETERS if name in known.stored.refused)
        return known.unsaved_refused.union(stored)

    def learn_refused(self, target: ModelTarget, parameter: Parameter) -> None:
        """Take in that it does not know one more."""
        known = self._of(target)
        known.unsaved_refused |= {parameter}
        self._has_news.set()

    def take_in(self, key: ModelKey, stored: Learned) -> None:
        """Take in what the store knows of a model."""
        known = self._known.setdefault(key, _Known())
        if stored.samples != known.stored.samples:
            known.stored = stored
            known.refit()
        known.stored = stored

    def with_window(self, target: ModelTarget) -> ModelTarget:
        """Return the model with the window it has in fact, where that is the smaller one."""
        known = self._of(target)
        window = known.unsaved_window or known.stored.context_size
        if window is None or window >= target.context_size:
            return target
        return replace(target, context_size=window)

    async def run(self) -> None:
        """Write down what was learned, until cancelled."""
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            await self.save()
            await asyncio.sleep(SAVE_PAUSE_S)

    async def save(self) -> None:
        """Write down what was learned. A store that is away keeps it for the next time."""
        for key, known in list(self._known.items()):
            if known.unsaved or known.unsaved_window or known.unsaved_refused:
                try:
                    await self._save(key, known)
                except StorageError as error:
                    log.warning("model_book_not_saved", error=str(error))
                    self._has_news.set()

    async def _save(self, key: ModelKey, known: _Known) -> None:
        samples = tuple(known.unsaved)
        more = Learned(
            samples=tuple(
                (sample.ascii, sample.other, sample.tools, sample.tokens) for sample in samples
            ),
            context_size=known.unsaved_window,
            refused=frozenset(known.unsaved_refused),
        )
        stored = await self._database.write(
            lambda connection: token_factors.add_learned(
                connection,
                key,
                more,
                max_samples=MAX_SAMPLES,
            ),
        )
        known.unsaved = [sample for sample in known.unsaved if sample not in samples]
        if known.unsaved_window == more.context_size:
            known.unsaved_window = None
        known.unsaved_refused -= more.refused
        known.stored = stored
        known.refit()

    def _of(self, target: ModelTarget) -> _Known:
        return self._known.setdefault(key_of(target), _Known())


def key_of(target: ModelTarget) -> ModelKey:
    """Return what a model's row is found by."""
    return ModelKey(target.name, target.base_url)
