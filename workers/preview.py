"""What the next request of a conversation would hold, without sending it: `turnmill context`.

Everything is read and measured as a worker does it; no model is called and nothing is written.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import orjson
from sqlalchemy import Connection

from shared.database import open_database
from shared.errors import NotFoundError, TurnmillError
from shared.ids import ConversationId
from shared.migrate import check_file, check_schema
from shared.repositories import conversations, turns
from shared.settings import Settings
from workers.context.budget import Budget
from workers.context.db_memory import DbMemory, StoredHistory
from workers.context.hints import Hint
from workers.context.llm_compact import SummaryRefusedError
from workers.context.messages import Message
from workers.context.meter import TokenMeter
from workers.context.summary import is_summary
from workers.model.values import ModelRequest
from workers.react.engine import Models, load_history, load_models
from workers.react.offered_tools import OfferedTools, are_too_many
from workers.react.turn_context import instructions_message, query_message
from workers.runtime.model_book import ModelBook
from workers.tools.toolbox import open_toolbox

REFUSED = 2
# Characters of a message that are shown.
SHOWN_CHARS = 60
# After every position that the store can hold.
BEYOND_ALL = 2**31 - 1
PLACEHOLDER = "(the next message)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewMessage:
    """One message of the request."""

    role: str
    # instructions, summary, history or query
    kind: str
    # Of a stored message; of a summary, that of the last message it stands for.
    position: int | None
    tokens: int
    pinned: bool
    # Whether the next turn would first put a summary in its place.
    to_be_summarized: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The request. Tokens are as a worker measures them."""

    conversation_id: str
    model: str
    context_size: int
    # Most that a request may hold.
    budget_tokens: int
    # Most that summary and history may take of it.
    history_budget_tokens: int
    history_tokens: int
    tools: int
    tools_tokens: int
    total_tokens: int
    messages: list[PreviewMessage]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    models: Models
    instructions: str | None
    tools: tuple[str, ...] | None
    # For earlier turns, if there were too many.
    picked_tools: tuple[str, ...]
    history: StoredHistory

    async def get_history(self) -> StoredHistory:
        return self.history


async def preview(settings: Settings, conversation_id: ConversationId, text: str) -> Preview:
    """Return what a turn with this input would send first.

    Model, instructions and tools are those of the conversation's newest turn. Tools of MCP
    servers are left out: nothing is connected. Raises NotFoundError, ConfigurationError or
    StorageError.
    """
    check_file(settings)
    database = open_database(settings)
    try:
        loaded = await database.read(
            lambda connection: _load(connection, settings, conversation_id),
        )
        book = ModelBook(database)
        target = loaded.models.with_windows(book).main
        meter = TokenMeter(book)
        registry = open_toolbox(settings, os.environ).registry
        if loaded.tools is not None:
            known = [name for name in loaded.tools if registry.find(name)]
            registry = registry.subset(known)
        tools = OfferedTools(registry, _remember_nothing)
        if are_too_many(registry, settings.react_tool_selection_threshold):
            tools.select(loaded.picked_tools)
        instructions = instructions_message(loaded.instructions, tools.catalog)
        fixed = (instructions, query_message(text))
        request = ModelRequest(target=target, messages=fixed, tools=tools.schemas)
        counter = meter.counter(target)
        history_budget = Budget.of(target).for_history(meter.measure(request))
        folded: list[Message] = []

        async def refuse(messages: Sequence[Message], *, hint: Hint, room_tokens: int) -> str:
            del hint, room_tokens
            folded.extend(messages)
            raise SummaryRefusedError("this is only a look")

        # Once to see what would be folded, once for the messages as they are.
        look = DbMemory(
            loaded.get_history, budget_tokens=history_budget, summarize=refuse, counter=counter
        )
        await look.get_messages()
        whole = DbMemory(loaded.get_history, budget_tokens=sys.maxsize, counter=counter)
        history = await whole.get_messages()
    finally:
        await database.close()
    positions = {message.position for message in folded}
    messages = (fixed[0], *history, fixed[1])
    return Preview(
        conversation_id=conversation_id,
        model=target.name,
        context_size=target.context_size,
        budget_tokens=Budget.of(target).usable,
        history_budget_tokens=history_budget,
        history_tokens=counter.messages(history),
        tools=len(request.tools),
        tools_tokens=counter.tools(request.tools),
        total_tokens=counter.messages(messages) + counter.tools(request.tools),
        messages=[
            PreviewMessage(
                role=message.role,
                kind="summary" if is_summary(message) else message.origin,
                position=message.position,
                tokens=counter.message(message),
                pinned=message.pinned or message.origin == "instructions",
                to_be_summarized=message.position is not None and message.position in positions,
                text=message.text,
            )
            for message in messages
        ],
    )


async def _remember_nothing(_names: Sequence[str]) -> None:
    """Stand for a store that nothing is loaded into."""


def _load(connection: Connection, settings: Settings, conversation_id: ConversationId) -> _Loaded:
    check_schema(connection)
    if conversations.get_conversation(connection, conversation_id) is None:
        raise NotFoundError(f"There is no conversation {conversation_id}: check the id")
    newest = turns.get_newest_request(connection, conversation_id)
    return _Loaded(
        models=load_models(connection, settings, newest.model),
        instructions=newest.instructions,
        tools=newest.tools,
        picked_tools=conversations.get_tools(connection, conversation_id),
        history=load_history(connection, conversation_id, BEYOND_ALL),
    )


def describe(found: Preview) -> str:
    """Return a preview as a table."""
    lines = [
        f"{found.conversation_id}: the next request to {found.model}",
        "",
        f"{'position':>8}  {'role':<9}  {'tokens':>7}  {'':<15}  text",
    ]
    for message in found.messages:
        position = "" if message.position is None else str(message.position)
        if message.kind == "summary":
            position = f"1-{message.position}"
        marks = [
            *(["pinned"] if message.pinned else []),
            *(["summary"] if message.kind == "summary" else []),
            *(["to be folded"] if message.to_be_summarized else []),
        ]
        shown = " ".join(message.text.split())
        if len(shown) > SHOWN_CHARS:
            shown = f"{shown[: SHOWN_CHARS - 1]}…"
        lines.append(
            f"{position:>8}  {message.role:<9}  {message.tokens:>7,}  {', '.join(marks):<15}"
            f"  {shown}".rstrip(),
        )
    totals = (
        f"{found.total_tokens:,} tokens, of {found.budget_tokens:,} that a request may hold"
        f" (window {found.context_size:,}). Summary and history: {found.history_tokens:,} of"
        f" {found.history_budget_tokens:,}."
    )
    lines += [
        f"{'':>8}  {'tools':<9}  {found.tools_tokens:>7,}  {'':<15}  {found.tools} schemas",
        "",
        totals,
    ]
    if any(message.to_be_summarized for message in found.messages):
        lines.append(
            "That is over the history's budget: the next turn has the marked messages summarized"
            " first.",
        )
    return "\n".join(lines)


def main() -> None:
    """Print a preview. An error of ours is one sentence and exit code 2."""
    parser = argparse.ArgumentParser(prog="turnmill context")
    parser.add_argument("conversation")
    parser.add_argument("--input", default=PLACEHOLDER)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    try:
        settings = Settings.from_environment()
        found = asyncio.run(preview(settings, ConversationId(given.conversation), given.input))
    except TurnmillError as error:
        sys.stderr.write(f"turnmill: {error.message}\n")
        sys.exit(REFUSED)
    text = orjson.dumps(asdict(found)).decode() if given.json else describe(found)
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
