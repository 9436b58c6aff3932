"""How long a model call may take, phase by phase, and which setting says so."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from shared.settings import Settings

T = TypeVar("T")

CONNECT = "LLM_CONNECT_TIMEOUT_S"
FIRST_BYTE = "LLM_FIRST_BYTE_TIMEOUT_S"
CHUNK = "LLM_CHUNK_TIMEOUT_S"
CALL = "LLM_CALL_TIMEOUT_S"


class CallTimeoutError(TimeoutError):
    """A phase of a call took too long. setting: what limits it."""

    def __init__(self, setting: str = "") -> None:
        super().__init__(setting)
        self.setting = setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Limits in seconds."""

    # The look-up of the host's name included.
    connect_s: float
    # From the request to the first byte of the answer's body.
    first_byte_s: float
    # Without any byte after that, comments that keep the connection open included.
    chunk_s: float
    # From the request to the end of the answer.
    call_s: float

    @classmethod
    def of(cls, settings: Settings) -> "Timeouts":
        """Return the limits that the settings give."""
        return cls(
            connect_s=settings.llm_connect_timeout_s,
            first_byte_s=settings.llm_first_byte_timeout_s,
            chunk_s=settings.llm_chunk_timeout_s,
            call_s=settings.llm_call_timeout_s,
        )


class CallClock:
    """The time that one call has left. Made when its request is sent."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._loop = asyncio.get_running_loop()
        now_s = self._loop.time()
        self._chunk_s = timeouts.chunk_s
        self._call_ends_at_s = now_s + timeouts.call_s
        self._first_ends_at_s = now_s + timeouts.first_byte_s
        self._has_begun = False

    def begin(self) -> None:
        """Say that the first byte has come."""
        self._has_begun = True

    async def wait(self, work: Awaitable[T]) -> T:
        """Wait for what comes next of the call. Raises CallTimeoutError."""
        if self._has_begun:
            phase_ends_at_s, setting = self._loop.time() + self._chunk_s, CHUNK
        else:
            phase_ends_at_s, setting = self._first_ends_at_s, FIRST_BYTE
        if self._call_ends_at_s < phase_ends_at_s:
            phase_ends_at_s, setting = self._call_ends_at_s, CALL
        limit = asyncio.timeout_at(phase_ends_at_s)
        try:
            async with limit:
                return await work
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise CallTimeoutError(setting) from error
