"""The budget of a model's window: what a request may hold and what is left for the answer."""

from dataclasses import dataclass

from workers.model.values import ModelTarget

# A request gets at least this much, at the expense of the answer.
MIN_USABLE_TOKENS = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of a window as configured, in tokens of the provider."""

    # Prompt and answer together.
    context_size: int
    # Most tokens of one answer.
    max_output_tokens: int

    @classmethod
    def of(cls, target: ModelTarget) -> "Budget":
        """Return the budget of a model; an output limit that leaves no prompt is a quarter."""
        output_tokens = target.max_output_tokens
        if output_tokens >= target.context_size:
            output_tokens = target.context_size // 4
        return cls(context_size=target.context_size, max_output_tokens=output_tokens)

    @property
    def usable(self) -> int:
        """Tokens that a request may hold, tool schemas included."""
        floor = min(MIN_USABLE_TOKENS, self.context_size * 3 // 4)
        return max(self.context_size - self.max_output_tokens, floor)

    def for_history(self, rest_tokens: int) -> int:
        """Return what a history may take of a request whose other parts have this size."""
        return max(self.usable - rest_tokens, self.usable // 4)

    def max_tokens_for(self, prompt_tokens: int) -> int:
        """Return the most tokens to ask for after a prompt of this size; at least 1."""
        return max(1, min(self.max_output_tokens, self.context_size - prompt_tokens))
