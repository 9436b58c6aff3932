"""Setting a loop up: the models, the history and the tools of a turn, and where it stands."""

from dataclasses import dataclass, replace

from sqlalchemy import Connection

from shared.errors import Deferred, HandedOver, ModelError
from shared.events import Phase
from shared.ids import ConversationId
from shared.repositories import (
    conversations,
    journal,
    messages,
    model_configs,
    summaries,
    token_factors,
    tool_calls,
)
from shared.repositories.journal import Entry
from shared.repositories.token_factors import Learned
from shared.repositories.tool_calls import StoredToolCall
from shared.repositories.turns import ClaimedTurn
from shared.settings import Settings
from workers.context.counter import TokenCounter
from workers.context.db_memory import StoredHistory
from workers.context.guard import ContextGuard
from workers.context.summarizer import Summarizer
from workers.model.client import ModelClient
from workers.model.roles import Roles
from workers.model.structured import Call
from workers.model.values import ModelRequest, ModelResponse, ModelTarget
from workers.react.loop import ReactLoop
from workers.react.notes import LoopLimits
from workers.react.offered_tools import OfferedTools, are_too_many, pick_tools
from workers.react.transcript import Transcript, fold
from workers.react.turn_context import TurnContext
from workers.runtime.model_book import ModelBook, key_of
from workers.runtime.model_calls import ModelCalls
from workers.runtime.progress import Progress
from workers.runtime.turn_run import TurnRun
from workers.tools.toolbox import Toolbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The models that a turn calls."""

    main: ModelTarget
    # Writes the summaries.
    fast: ModelTarget
    # What the store knows of each.
    learned: dict[ModelTarget, Learned]

    def with_windows(self, book: ModelBook) -> "Models":
        """Have the book take in what is known; return the models with the windows they have."""
        for target, learned in self.learned.items():
            book.take_in(key_of(target), learned)
        main, fast = book.with_window(self.main), book.with_window(self.fast)
        return replace(self, main=main, fast=fast)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """All that is read before the loop starts, in one look."""

    history_version: int
    history: StoredHistory
    # Of earlier attempts.
    entries: list[Entry]
    calls: list[StoredToolCall]
    models: Models
    # Picked for the conversation's earlier turns.
    conversation_tools: tuple[str, ...]

    async def get_history(self) -> StoredHistory:
        return self.history


class ReactEngine:
    """Runs ReAct turns. One per process."""

    def __init__(
        self,
        settings: Settings,
        models: ModelClient,
        book: ModelBook,
        toolbox: Toolbox,
    ) -> None:
        self._settings = settings
        self._models = models
        self._book = book
        self._toolbox = toolbox

    async def run(self, run: TurnRun, progress: Progress) -> None:
        """Work on the turn until it is completed; see `ReactLoop.run` for what it raises."""
        turn, settings = run.turn, self._settings
        loaded = await run.read(lambda connection: _load(connection, turn, settings))
        models = loaded.models.with_windows(self._book)
        calls = ModelCalls(
            self._models,
            self._book,
            progress,
            turn,
            compaction_timeout_s=settings.llm_compaction_timeout_s,
        )
        transcript = fold(loaded.entries, loaded.calls, progress)
        try:
            await self._go_on(run, progress, transcript, replace(loaded, models=models), calls)
        except (Deferred, HandedOver):
            # What calls have used that led to nothing yet.
            if usage := progress.take_usage():
                await run.record_response([transcript.usage_entry(usage)])
            raise

    async def _go_on(
        self,
        run: TurnRun,
        progress: Progress,
        transcript: Transcript,
        loaded: _Loaded,
        calls: ModelCalls,
    ) -> None:
        settings, models = self._settings, loaded.models
        ask = _fitting(calls, self._book)
        tools = await self._offer_tools(run, progress, transcript, loaded, ask)
        context = TurnContext(
            run,
            transcript,
            progress,
            target=models.main,
            compaction_target=models.fast,
            tools=tools,
            meter=calls.meter,
            book=self._book,
            summarize=_summarizer(ask, calls, self._book, models.fast).summarize,
            history_version=loaded.history_version,
        )
        await context.remember(loaded.get_history)
        loop = ReactLoop(
            run,
            progress,
            transcript,
            context=context,
            calls=calls,
            tools=tools,
            limits=LoopLimits.of(settings),
            synthesis=settings.react_synthesis,
            tool_timeout_s=settings.tool_timeout_s,
        )
        await loop.run()

    async def _offer_tools(
        self,
        run: TurnRun,
        progress: Progress,
        transcript: Transcript,
        loaded: _Loaded,
        ask: Call,
    ) -> OfferedTools:
        """Return the tools for the turn's model, picked first if there are too many.

        What was picked for the conversation before is offered again, so that its requests begin
        with the same tools.
        """
        turn, registry = run.turn, self._toolbox.registry
        if turn.tools is not None:
            registry = registry.subset(turn.tools)
        offered = OfferedTools(registry, run.record_tools)
        if not are_too_many(registry, self._settings.react_tool_selection_threshold):
            return offered
        picked = transcript.picked_tools
        if picked is None:
            picked = loaded.conversation_tools
            if not any(registry.find(name) for name in picked):
                total = len(registry.names)
                await run.emit(Phase(phase="selecting_tools", total_tools=total))
                fast = self._book.with_window(loaded.models.fast)
                picked = await run.lease.run(pick_tools(ask, fast, registry, turn.input))
            entry = transcript.selection_entry(picked, progress.take_usage())
            await run.record_tools(picked, entry)
        offered.select(picked)
        # Those that were loaded later, perhaps by an earlier attempt.
        offered.add(loaded.conversation_tools)
        return offered


def _fitting(calls: ModelCalls, book: ModelBook) -> Call:
    """Return what makes calls outside of the loop."""
    # Their requests pass a guard too: one that never asks for a summary itself.
    guard = ContextGuard(calls.meter, None)

    async def call(request: ModelRequest) -> ModelResponse:
        fitted = await guard.fit(request, hint="general")
        return await calls.complete(fitted.request)

    async def call_or_fall_back(request: ModelRequest) -> ModelResponse:
        try:
            return await call(request)
        except ModelError as error:
            fallback = request.target.fallback
            if fallback is None or not error.may_fall_back:
                raise
        return await call(replace(request, target=book.with_window(fallback)))

    return call_or_fall_back


def _summarizer(
    ask: Call,
    calls: ModelCalls,
    book: ModelBook,
    model: ModelTarget,
) -> Summarizer:
    def current() -> tuple[ModelTarget, TokenCounter]:
        target = book.with_window(model)
        return target, calls.meter.counter(target)

    return Summarizer(ask, current)


def _load(connection: Connection, turn: ClaimedTurn, settings: Settings) -> _Loaded:
    is_first = turn.attempt == 1
    # Read before the messages: a change in between shows as another version later.
    version = summaries.get_history_version(connection, turn.conversation_id)
    return _Loaded(
        history_version=version,
        history=load_history(connection, turn.conversation_id, turn.first_position),
        entries=[] if is_first else journal.get_entries(connection, turn.id),
        calls=[] if is_first else tool_calls.get_tool_calls(connection, turn.id),
        models=load_models(connection, settings, turn.model),
        conversation_tools=conversations.get_tools(connection, turn.conversation_id),
    )


def load_models(connection: Connection, settings: Settings, model: str | None) -> Models:
    """Return the models of a turn and what is known of them.

    model: the one that was asked for, or its role. Raises ConfigurationError if none can be used.
    """
    roles = Roles(settings, model_configs.list_model_configs(connection))
    main = roles.main(model)
    fast = roles.fast(main)
    fallbacks = {target.fallback for target in (main, fast) if target.fallback}
    return Models(
        main=main,
        fast=fast,
        learned={
            target: token_factors.get_learned(connection, key_of(target))
            for target in {main, fast} | fallbacks
        },
    )


def load_history(
    connection: Connection,
    conversation_id: ConversationId,
    before_position: int,
) -> StoredHistory:
    """Return what a conversation holds before a position, from its newest checkpoint on."""
    if before_position == 1:
        return StoredHistory(checkpoint=None, messages=[])
    checkpoint = summaries.get_checkpoint(
        connection,
        conversation_id,
        before_position=before_position,
    )
    return StoredHistory(
        checkpoint=checkpoint,
        messages=messages.get_history(
            connection,
            conversation_id,
            before_position=before_position,
            after_position=checkpoint.until_position if checkpoint else 0,
        ),
    )
