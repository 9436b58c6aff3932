"""What providers refused, kept for one client."""

from workers.model.parameters import Parameter, Refusals
from workers.model.values import ModelTarget


class Remembered(Refusals):
    """Remembers as long as it lives."""

    def __init__(self) -> None:
        self._refused: dict[ModelTarget, frozenset[Parameter]] = {}

    def refused(self, target: ModelTarget) -> frozenset[Parameter]:
        """Return what a model's provider does not know."""
        return self._refused.get(target, frozenset())

    def learn_refused(self, target: ModelTarget, parameter: Parameter) -> None:
        """Take in that it does not know one more."""
        self._refused[target] = self.refused(target) | {parameter}
