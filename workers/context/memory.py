"""Memories: what an agent remembers of a conversation, behind one interface.

The product uses `DbMemory`. `WindowMemory` and `SummaryMemory` keep their messages themselves;
they serve whoever embeds the context layers without a database, and tests.
"""

from abc import ABC, abstractmethod

from workers.context.counter import ESTIMATE, TokenCounter
from workers.context.llm_compact import Summarize, llm_compact
from workers.context.messages import Message
from workers.context.truncate import keep_newest


class BaseMemory(ABC):
    """Messages of a conversation, oldest first.

    Whatever a memory leaves out, it keeps system and pinned messages, tears no round apart, and
    never begins with an assistant or tool message.
    """

    @abstractmethod
    async def add_message(self, message: Message) -> None:
        """Remember a message."""

    @abstractmethod
    async def get_messages(self) -> list[Message]:
        """Return what is remembered, as a list of the caller's own."""

    @abstractmethod
    async def clear(self) -> None:
        """Forget everything."""


class WindowMemory(BaseMemory):
    """The newest messages by number, system messages not counted. Calls no model."""

    def __init__(self, max_messages: int) -> None:
        """Raise ValueError if there would be no room for any message."""
        if max_messages < 1:
            raise ValueError(f"max_messages must be at least 1, not {max_messages}")
        self._max_messages = max_messages
        self._messages: tuple[Message, ...] = ()

    async def add_message(self, message: Message) -> None:
        """Remember a message."""
        self._messages += (message,)

    async def get_messages(self) -> list[Message]:
        """Return the system messages and the newest others."""
        self._messages = _newest(self._messages, self._max_messages)
        return list(self._messages)

    async def clear(self) -> None:
        """Forget everything."""
        self._messages = ()


class SummaryMemory(BaseMemory):
    """All messages, until they are more than a threshold: then the older become a summary.

    summarize: writes it; see `Summarizer`.
    threshold: most messages besides the system messages.
    keep_newest: how many stay as they are when there are more. Without a usable summary only they
    stay, so that no call follows on each further message.
    """

    def __init__(
        self,
        summarize: Summarize,
        *,
        threshold: int = 20,
        keep_newest: int = 6,
        counter: TokenCounter = ESTIMATE,
    ) -> None:
        """Raise ValueError unless 0 < keep_newest < threshold."""
        if not 0 < keep_newest < threshold:
            raise ValueError(f"keep_newest must lie between 0 and {threshold}, not {keep_newest}")
        self._summarize = summarize
        self._threshold = threshold
        self._keep_newest = keep_newest
        self._counter = counter
        self._messages: tuple[Message, ...] = ()

    async def add_message(self, message: Message) -> None:
        """Remember a message."""
        self._messages += (message,)

    async def get_messages(self) -> list[Message]:
        """Return what is remembered, summarised first if it has become too much."""
        if _count(self._messages) > self._threshold:
            self._messages = await self._fold()
        return list(self._messages)

    async def clear(self) -> None:
        """Forget everything."""
        self._messages = ()

    async def _fold(self) -> tuple[Message, ...]:
        compacted = await llm_compact(
            self._messages,
            # Too much by number, whatever its size.
            self._counter.messages(self._messages) - 1,
            self._summarize,
            keep_newest=self._keep_newest,
            counter=self._counter,
        )
        if compacted.method == "llm":
            return compacted.messages
        return _newest(self._messages, self._keep_newest)


def _newest(messages: tuple[Message, ...], count: int) -> tuple[Message, ...]:
    system_messages = len(messages) - _count(messages)
    return keep_newest(messages, count + system_messages, len)


def _count(messages: tuple[Message, ...]) -> int:
    return sum(message.role != "system" for message in messages)
