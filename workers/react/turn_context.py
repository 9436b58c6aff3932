"""What the requests of a turn hold, and what is kept of every compaction they needed.

Whatever the guard had to change stays changed: the next request goes on from it, so that its
prefix stays the same, and another attempt finds it in the journal and the checkpoints.
"""

from collections.abc import Awaitable, Callable, Sequence

from shared.attachment import Attachment
from shared.events import Compact
from shared.repositories.summaries import Checkpoint
from workers.context.budget import Budget
from workers.context.compaction import Compaction
from workers.context.db_memory import DbMemory, StoredHistory
from workers.context.guard import ContextGuard
from workers.context.hints import Hint
from workers.context.images import attach
from workers.context.llm_compact import Summarize
from workers.context.messages import Message
from workers.context.meter import TokenMeter
from workers.model.values import ModelRequest, ModelTarget
from workers.react import prompts
from workers.react.offered_tools import OfferedTools
from workers.react.synthesis import synthesis_messages
from workers.react.transcript import Transcript
from workers.runtime.model_book import ModelBook
from workers.runtime.progress import Progress
from workers.runtime.turn_run import TurnRun


class TurnContext:
    """The context of one attempt at a turn."""

    def __init__(
        self,
        run: TurnRun,
        transcript: Transcript,
        progress: Progress,
        *,
        target: ModelTarget,
        compaction_target: ModelTarget,
        tools: OfferedTools,
        meter: TokenMeter,
        book: ModelBook,
        summarize: Summarize,
        history_version: int,
    ) -> None:
        self._run = run
        self._transcript = transcript
        self._progress = progress
        self._target = target
        self._compaction_target = compaction_target
        self._tools = tools
        self._meter = meter
        self._book = book
        self._summarize = summarize
        self._guard = ContextGuard(meter, summarize)
        self._history_version = history_version
        self._history: tuple[Message, ...] = ()
        self._query = query_message(run.turn.input, run.turn.attachments)

    async def remember(self, load: Callable[[], Awaitable[StoredHistory]]) -> None:
        """Load the history, within what the rest of the request leaves of the budget."""
        rest = self._meter.measure(self.loop_request())
        memory = DbMemory(
            load,
            budget_tokens=Budget.of(self._target).for_history(rest),
            summarize=self._summarize,
            counter=self._meter.counter(self._target),
        )
        self._history = tuple(await self._run.lease.run(memory.get_messages()))
        if memory.compaction is not None:
            await self._keep(memory.compaction)

    def loop_request(self) -> ModelRequest:
        """Return the request of the loop's next iteration, before it is made to fit."""
        return ModelRequest(
            target=self._target,
            messages=(
                instructions_message(self._run.turn.instructions, self._tools.catalog),
                *self._history,
                self._query,
                *self._transcript.messages,
            ),
            tools=self._tools.schemas,
            purpose="loop",
        )

    def synthesis_request(self) -> ModelRequest:
        """Return the request that has the answer written, before it is made to fit."""
        return ModelRequest(
            target=self._target,
            messages=synthesis_messages(
                self._run.turn.instructions,
                self._history,
                self._query,
                self._transcript.messages,
                self._transcript.draft or "",
            ),
            purpose="synthesis",
        )

    async def fit(
        self,
        request: ModelRequest,
        *,
        hint: Hint,
        limit_tokens: int | None = None,
    ) -> ModelRequest:
        """Return the request, made to fit; what was done to it is kept. See `ContextGuard.fit`."""
        fitting = self._guard.fit(request, hint=hint, limit_tokens=limit_tokens)
        fitted = await self._run.lease.run(fitting)
        if fitted.compactions:
            self._adopt(fitted.request)
        for compaction in fitted.compactions:
            await self._keep(compaction)
        return fitted.request

    def fall_back(self) -> str | None:
        """Make requests for the fallback from now on; return its name, None if there is none."""
        fallback = self._target.fallback
        if fallback is None:
            return None
        self._target = self._book.with_window(fallback)
        return fallback.name

    async def fit_half(
        self,
        build: Callable[[], ModelRequest],
        refused: ModelRequest,
        *,
        hint: Hint,
    ) -> ModelRequest:
        """Return a request of half the size of one that its provider refused for its length."""
        self._target = self._book.with_window(self._target)
        size = min(self._meter.measure(refused), Budget.of(self._target).usable)
        return await self.fit(build(), hint=hint, limit_tokens=size // 2)

    def _adopt(self, request: ModelRequest) -> None:
        at = next(i for i, message in enumerate(request.messages) if message.origin == "query")
        self._history = request.messages[1:at]
        if request.purpose == "loop":
            self._query = request.messages[at]
            self._transcript.messages = list(request.messages[at + 1 :])

    async def _keep(self, compaction: Compaction) -> None:
        """Have a compaction journaled, its checkpoint written, and readers told."""
        event = _event(compaction)
        entry = self._transcript.compaction_entry(
            event.data(),
            # Counted without the query.
            replaced=[index - 1 for index in compaction.replaced],
            summary=compaction.summary,
            usage=self._progress.take_usage(),
        )
        await self._run.record_compaction(
            entry,
            self._checkpoint(compaction),
            history_version=self._history_version,
        )
        await self._run.emit(event)

    def _checkpoint(self, compaction: Compaction) -> Checkpoint | None:
        if compaction.until_position is None:
            return None
        is_written = compaction.method == "llm"
        return Checkpoint(
            until_position=compaction.until_position,
            method=compaction.method,
            content=compaction.summary,
            tokens=self._meter.counter(self._target).text(compaction.summary),
            model=self._compaction_target.name if is_written else None,
        )


def instructions_message(instructions: str | None, catalog: str = "") -> Message:
    """Return the loop's system message.

    instructions: the turn's own. catalog: of tools that can be loaded, if not all are offered.
    """
    text = prompts.system_prompt(prompts.SYSTEM, instructions)
    if catalog:
        text = f"{text}\n\n{catalog}"
    return Message(role="system", content=text, origin="instructions")


def query_message(text: str, attachments: Sequence[Attachment] = ()) -> Message:
    """Return a turn's input as a message."""
    return Message(role="user", content=attach(text, attachments), pinned=True, origin="query")


def _event(compaction: Compaction) -> Compact:
    return Compact(
        layer=compaction.layer,
        hint=compaction.hint,
        purpose=compaction.purpose,
        original_messages=compaction.original_messages,
        kept_messages=compaction.kept_messages,
        tokens_before=compaction.tokens_before,
        tokens_after=compaction.tokens_after,
        method=compaction.method,
        summarized_until=compaction.until_position,
        unpinned=compaction.unpinned or None,
        reason=compaction.reason or None,
    )
