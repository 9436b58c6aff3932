"""The model calls of one attempt: counted by purpose, and learned from."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from shared.errors import ContextLengthError, ModelStreamError, ModelTimeoutError
from shared.repositories.turns import ClaimedTurn
from workers.context.budget import Budget
from workers.context.meter import TokenMeter
from workers.model.client import ModelClient
from workers.model.limits import Ticket
from workers.model.values import ModelEvent, ModelRequest, ModelResponse, TextDelta, Usage
from workers.runtime.model_book import ModelBook
from workers.runtime.progress import Progress


class ModelCalls:
    """Calls models for one turn. What it is given has passed the ContextGuard."""

    def __init__(
        self,
        models: ModelClient,
        book: ModelBook,
        progress: Progress,
        turn: ClaimedTurn,
        *,
        compaction_timeout_s: float,
    ) -> None:
        self.meter = TokenMeter(book)
        self._models = models
        self._book = book
        self._progress = progress
        self._turn = turn
        self._compaction_timeout_s = compaction_timeout_s

    async def stream(
        self,
        request: ModelRequest,
        timeout: asyncio.Timeout | None = None,  # noqa: ASYNC109 - the caller's, who has set it
    ) -> AsyncGenerator[ModelEvent, None]:
        """Yield an answer as it comes; see `ModelClient.stream`. Close it with `aclosing`.

        What an answer that broke off, or was not read to its end, has used is estimated.
        timeout: stands still while the call is in line for its model.
        """
        text: list[str] | None = None
        try:
            async with aclosing(self._models.stream(self._in_line(request, timeout))) as events:
                async for event in events:
                    if isinstance(event, ModelResponse):
                        text = None
                        self._progress.count(request.purpose, event.usage)
                        self.meter.observe(request, event.usage)
                    else:
                        text = text or []
                        text += [event.text] if isinstance(event, TextDelta) else []
                    yield event
        except ContextLengthError as refused:
            self._learn_refusal(request, refused)
            raise
        finally:
            if text is not None:
                self._progress.count(request.purpose, self._estimate(request, "".join(text)))

    def _in_line(self, request: ModelRequest, timeout: asyncio.Timeout | None) -> ModelRequest:
        """Return the request with its turn's place in the line for its model."""
        is_counted = request.target.limits.tokens_per_minute is not None
        ticket = Ticket(
            share=self._turn.conversation_id,
            place=self._turn.id,
            tokens=self.meter.measure(request) if is_counted else 0,
            timeout=timeout,
        )
        return replace(request, ticket=ticket)

    def _estimate(self, request: ModelRequest, text: str) -> Usage:
        return Usage(
            input_tokens=self.meter.measure(request),
            output_tokens=self.meter.counter(request.target).text(text),
            is_estimated=True,
        )

    async def pause(self, tries: int) -> None:
        """Wait before an answer that broke off is asked for again. tries: made after the first."""
        await self._models.pause(tries)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Return a whole answer; a summary within the time there is for one. Raises ModelError."""
        if request.purpose != "compaction":
            return await self._last_event(request)
        try:
            async with asyncio.timeout(self._compaction_timeout_s) as timeout:
                return await self._last_event(request, timeout)
        except TimeoutError:
            raise ModelTimeoutError(
                f"{request.target.name} wrote nothing whole within {self._compaction_timeout_s:g}"
                " s (LLM_COMPACTION_TIMEOUT_S)",
            ) from None

    async def _last_event(
        self,
        request: ModelRequest,
        timeout: asyncio.Timeout | None = None,  # noqa: ASYNC109 - see `stream`
    ) -> ModelResponse:
        async with aclosing(self.stream(request, timeout)) as events:
            async for event in events:
                if isinstance(event, ModelResponse):
                    return event
        raise ModelStreamError

    def _learn_refusal(self, request: ModelRequest, refused: ContextLengthError) -> None:
        """Learn the sizes that a refusal states, or the bounds that follow from it."""
        asked = request.max_tokens or Budget.of(request.target).max_output_tokens
        prompt = self.meter.measure(request)
        if refused.prompt_tokens:
            self.meter.learn_size(request, refused.prompt_tokens)
        # Without a word of the window, half of what was too much is tried.
        window = refused.window_tokens or (prompt + asked) // 2
        if window < request.target.context_size:
            self._book.learn_window(request.target, window)
