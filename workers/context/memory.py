"""The interface of a memory: what an agent remembers of a conversation."""

from abc import ABC, abstractmethod

from workers.context.messages import Message


class BaseMemory(ABC):
    """Messages of a conversation, oldest first."""

    @abstractmethod
    async def add_message(self, message: Message) -> None:
        """Remember a message."""

    @abstractmethod
    async def get_messages(self) -> list[Message]:
        """Return what is remembered, as a list of the caller's own."""

    @abstractmethod
    async def clear(self) -> None:
        """Forget everything."""
