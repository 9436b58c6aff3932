"""The memory of the product: a conversation's stored messages, read-only, within the budget."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from workers.context.compaction import Compaction
from workers.context.estimate import estimate_messages
from workers.context.memory import BaseMemory
from workers.context.messages import Message, Role
from workers.context.truncate import smart_truncate


class HistoryMessage(Protocol):
    """A stored message, as far as a memory reads it."""

    @property
    def role(self) -> str:
        """One of user or assistant; others are not part of a history."""

    @property
    def text(self) -> str:
        """The message's text."""


class DbMemory(BaseMemory):
    """The history of one turn.

    load: returns the conversation's messages before the turn's first, in order; what it raises
    passes through, since an empty history would be a lie.
    budget_tokens: most tokens of the history, as `estimate_messages` counts.
    The attributes describe the last load.
    """

    def __init__(
        self,
        load: Callable[[], Awaitable[Sequence[HistoryMessage]]],
        budget_tokens: int,
    ) -> None:
        self._load = load
        self._budget_tokens = budget_tokens
        # Messages before and after the compaction.
        self.original_count = 0
        self.compacted_count = 0
        self.compaction: Compaction | None = None

    @property
    def was_compacted(self) -> bool:
        """Whether the last load left anything out."""
        return self.compaction is not None

    async def add_message(self, message: Message) -> None:
        """Do nothing: messages are stored by the transactions of the turn."""

    async def clear(self) -> None:
        """Do nothing: messages are deleted with their conversation only."""

    async def get_messages(self) -> list[Message]:
        """Load the history, without a user message at its end: that would be the query."""
        history = [_to_message(stored) for stored in await self._load() if _is_history(stored)]
        if history and history[-1].role == "user":
            history.pop()
        kept = self._fit(history)
        self.original_count = len(history)
        self.compacted_count = len(kept)
        return kept

    def _fit(self, history: list[Message]) -> list[Message]:
        self.compaction = None
        tokens = estimate_messages(history)
        if tokens <= self._budget_tokens:
            return history
        kept = list(smart_truncate(history, self._budget_tokens))
        self.compaction = Compaction(
            layer="db_memory",
            hint="general",
            purpose="history",
            original_messages=len(history),
            kept_messages=len(kept),
            tokens_before=tokens,
            tokens_after=estimate_messages(kept),
            reason=(
                f"the history of about {tokens} tokens is over the budget of {self._budget_tokens}"
            ),
        )
        return kept


def _is_history(stored: HistoryMessage) -> bool:
    return stored.role in ("user", "assistant")


def _to_message(stored: HistoryMessage) -> Message:
    role: Role = "user" if stored.role == "user" else "assistant"
    return Message(role=role, content=stored.text, origin="history")
