"""Setting a loop up: the model, the history and the tools of a turn, and where it stands."""

from dataclasses import dataclass

from sqlalchemy import Connection

from shared.repositories import journal, messages, model_configs
from shared.repositories.journal import Entry, StoredToolCall
from shared.repositories.messages import StoredMessage
from shared.repositories.model_configs import ModelConfig
from shared.repositories.turns import ClaimedTurn
from shared.settings import Settings
from workers.context.budget import Budget
from workers.context.db_memory import DbMemory
from workers.context.guard import ContextGuard
from workers.model.client import ModelClient
from workers.model.roles import resolve_target
from workers.react.loop import ReactLoop
from workers.react.transcript import fold
from workers.runtime.progress import Progress
from workers.runtime.turn_run import TurnRun
from workers.tools.registry import ToolRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """All that is read before the loop starts, in one look."""

    history: list[StoredMessage]
    # Of earlier attempts.
    entries: list[Entry]
    calls: list[StoredToolCall]
    config: ModelConfig | None

    async def get_history(self) -> list[StoredMessage]:
        return self.history


class ReactEngine:
    """Runs ReAct turns. One per process."""

    def __init__(self, settings: Settings, models: ModelClient, tools: ToolRegistry) -> None:
        self._settings = settings
        self._models = models
        self._tools = tools

    async def run(self, run: TurnRun, progress: Progress) -> None:
        """Work on the turn until it is completed; see `ReactLoop.run` for what it raises."""
        turn = run.turn
        loaded = await run.read(lambda connection: _load(connection, turn))
        target = resolve_target(self._settings, loaded.config, turn.model)
        memory = DbMemory(loaded.get_history, budget_tokens=Budget.of(target).usable)
        history = await memory.get_messages()
        loop = ReactLoop(
            run,
            progress,
            fold(loaded.entries, loaded.calls, progress),
            history=tuple(history),
            models=self._models,
            target=target,
            guard=ContextGuard(),
            tools=self._tools if turn.tools is None else self._tools.subset(turn.tools),
            max_iterations=self._settings.react_max_iterations,
            tool_timeout_s=self._settings.tool_timeout_s,
        )
        if memory.compaction is not None:
            await loop.note_compaction(memory.compaction)
        await loop.run()


def _load(connection: Connection, turn: ClaimedTurn) -> _Loaded:
    is_first = turn.attempt == 1
    return _Loaded(
        history=_load_history(connection, turn),
        entries=[] if is_first else journal.get_entries(connection, turn.id),
        calls=[] if is_first else journal.get_tool_calls(connection, turn.id),
        config=_load_config(connection, turn.model),
    )


def _load_history(connection: Connection, turn: ClaimedTurn) -> list[StoredMessage]:
    if turn.first_position == 1:
        return []
    return messages.get_history(
        connection,
        turn.conversation_id,
        before_position=turn.first_position,
    )


def _load_config(connection: Connection, model: str | None) -> ModelConfig | None:
    if model is not None:
        return model_configs.get_model_config(connection, model)
    return model_configs.get_model_config_by_role(connection, "main")
