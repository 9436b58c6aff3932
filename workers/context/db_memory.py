"""The memory of the product: a conversation's stored messages, read-only, within the budget.

What a load had to fold away is told by `compaction`; whoever loads writes that down as a
checkpoint, and the next load begins there.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.attachment import Attachment
from shared.repositories.summaries import Checkpoint
from workers.context.compaction import Compaction, newest_gone
from workers.context.counter import ESTIMATE, TokenCounter
from workers.context.images import attach
from workers.context.llm_compact import Summarize, llm_compact
from workers.context.memory import BaseMemory
from workers.context.messages import Message, Role
from workers.context.summary import summary_message


class HistoryMessage(Protocol):
    """A stored message, as far as a memory reads it."""

    @property
    def position(self) -> int:
        """Its place in the conversation."""

    @property
    def role(self) -> str:
        """One of user or assistant; others are not part of a history."""

    @property
    def text(self) -> str:
        """The message's text."""

    @property
    def attachments(self) -> Sequence[Attachment]:
        """The message's images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredHistory:
    """What a load reads: the newest checkpoint, and the messages after it in order."""

    checkpoint: Checkpoint | None
    messages: Sequence[HistoryMessage]


class DbMemory(BaseMemory):
    """The history of one turn.

    load: returns the conversation's history before the turn's first message; what it raises
    passes through, since an empty history would be a lie.
    budget_tokens: most tokens of the history, as the counter counts; what has to be compacted
    is brought down to half of it.
    summarize: None leaves the oldest messages out instead.
    The attributes describe the last load.
    """

    def __init__(
        self,
        load: Callable[[], Awaitable[StoredHistory]],
        *,
        budget_tokens: int,
        summarize: Summarize | None = None,
        counter: TokenCounter = ESTIMATE,
    ) -> None:
        self._load = load
        self._budget_tokens = budget_tokens
        self._summarize = summarize
        self._counter = counter
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
        history = _read(await self._load())
        kept = await self._fit(tuple(history))
        self.original_count = len(history)
        self.compacted_count = len(kept)
        return list(kept)

    async def _fit(self, history: tuple[Message, ...]) -> tuple[Message, ...]:
        self.compaction = None
        tokens = self._counter.messages(history)
        target = self._budget_tokens // 2
        compacted = await llm_compact(
            history,
            self._budget_tokens,
            self._summarize,
            target_tokens=target,
            keep_tokens=target // 2,
            counter=self._counter,
        )
        if compacted.replaced:
            over = f"about {tokens} tokens of history are over the budget of {self._budget_tokens}"
            self.compaction = Compaction(
                layer="db_memory",
                hint="general",
                purpose="history",
                original_messages=len(history),
                kept_messages=len(compacted.messages),
                tokens_before=tokens,
                tokens_after=self._counter.messages(compacted.messages),
                method=compacted.method,
                reason="; ".join(filter(None, (over, compacted.reason))),
                until_position=newest_gone(history, compacted),
                summary=compacted.summary,
            )
        return compacted.messages


def _read(stored: StoredHistory) -> list[Message]:
    history = [_to_message(message) for message in stored.messages if _is_history(message)]
    if history and history[-1].role == "user":
        history.pop()
    checkpoint = stored.checkpoint
    if checkpoint is not None and checkpoint.content:
        position = checkpoint.until_position
        history.insert(0, summary_message(checkpoint.content, position=position))
    return history


def _is_history(stored: HistoryMessage) -> bool:
    return stored.role in ("user", "assistant")


def _to_message(stored: HistoryMessage) -> Message:
    role: Role = "user" if stored.role == "user" else "assistant"
    content = attach(stored.text, stored.attachments)
    return Message(role=role, content=content, origin="history", position=stored.position)
