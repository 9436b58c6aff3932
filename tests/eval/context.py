"""How well requests are measured: our count over a provider's, before and after calibration.

Every request is measured as the first one of a turn, by a worker that has only read what others
stored, and then learned from. Later requests of a turn are measured better still: the size that
was reported of the one before, and the growth.
"""

import tempfile
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import quantiles

from shared.database import Database, open_database
from shared.repositories import token_factors
from shared.settings import Settings
from tests.eval.referees import Referee
from tests.helpers import airline_tools
from tests.helpers.data import Chat
from tests.helpers.databases import SqliteDatabases
from workers.context.counter import ESTIMATE
from workers.context.messages import Message
from workers.context.meter import TokenMeter
from workers.model.values import ModelRequest, ModelTarget, ToolSchema, Usage
from workers.react import prompts
from workers.runtime.model_book import ModelBook, key_of
from workers.tools.discovery import discover_tools

# Calls after which a model counts as known.
CALLS = 3
# Of the conversations that short chats are joined to.
MIN_ANSWERS = 20
# What the middle nine tenths of the ratios must lie within.
MIN_RATIO, MAX_RATIO = 0.95, 1.25


@dataclass(frozen=True, slots=True)
class Spread:
    """The 5th and the 95th percentile of our count over the provider's."""

    low: float
    high: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> "Spread":
        """Return the spread of at least two ratios."""
        cuts = quantiles(ratios, n=20, method="inclusive")
        return cls(cuts[0], cuts[-1])

    def __str__(self) -> str:
        return f"{self.low:.2f} … {self.high:.2f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one tokenizer's count of one set of chats was met."""

    data: str
    tokenizer: str
    # Requests after the first calls of each conversation, whose model nothing was known of.
    requests: int
    # Their size by `estimate_tokens`, as that of a model still unknown, and as was learned by then.
    plain: Spread
    before: Spread
    after: Spread
    # Of the chats as they are, with one model for all: most of these requests are short.
    apart: Spread

    @property
    def holds(self) -> bool:
        """Whether the measure is as good as it is said to be."""
        spreads = (self.after, self.apart)
        return all(item.low >= MIN_RATIO and item.high <= MAX_RATIO for item in spreads)


@dataclass(frozen=True, slots=True)
class _Measured:
    """One request's sizes over the provider's."""

    plain: float
    before: float
    after: float


async def measure(data: str, chats: Sequence[Chat], referee: Referee) -> Result:
    """Return how well requests of the chats are measured for a tokenizer."""
    talks = [await _measure([talk], referee) for talk in _join(chats)]
    fresh = [measured for talk in talks for measured in talk]
    apart = await _measure(chats, referee)
    return Result(
        data=data,
        tokenizer=referee.name,
        requests=len(fresh),
        plain=Spread.of([item.plain for item in fresh]),
        before=Spread.of([item.before for item in fresh]),
        after=Spread.of([item.after for item in fresh]),
        apart=Spread.of([item.after for item in apart]),
    )


def _join(chats: Sequence[Chat]) -> Iterator[Chat]:
    """Yield chats one after the other, in conversations of MIN_ANSWERS or little more."""
    joined: Chat | None = None
    for chat in chats:
        # The first chat's instructions are those of the conversation.
        more = tuple(message for message in chat.messages if message.role != "system")
        joined = replace(joined, messages=(*joined.messages, *more)) if joined else chat
        if sum(message.role == "assistant" for message in joined.messages) >= MIN_ANSWERS:
            yield joined
            joined = None
    if joined is not None:
        yield joined


async def _measure(chats: Sequence[Chat], referee: Referee) -> list[_Measured]:
    """Measure the requests that led to each answer, those of the first calls left out."""
    requests = [request for chat in chats for request in _requests(chat, referee.name)]
    async with _fresh_store() as store:
        unknown = ModelBook(store)
        return [
            _Measured(
                plain=ESTIMATE.request(request) / tokens,
                before=TokenMeter(unknown).measure(request) / tokens,
                after=await _measure_and_learn(store, request, tokens) / tokens,
            )
            for request, tokens in zip(requests, map(referee.count, requests), strict=True)
        ][CALLS:]


async def _measure_and_learn(store: Database, request: ModelRequest, tokens: int) -> int:
    """Return the measure of a request, and have it called by a worker of its own."""
    key = key_of(request.target)
    book = ModelBook(store)
    learned = await store.read(lambda connection: token_factors.get_learned(connection, key))
    book.take_in(key, learned)
    meter = TokenMeter(book)
    measured = meter.measure(request)
    meter.observe(request, Usage(input_tokens=tokens, output_tokens=1))
    await book.save()
    return measured


@asynccontextmanager
async def _fresh_store() -> AsyncGenerator[Database]:
    with tempfile.TemporaryDirectory() as folder:
        url = SqliteDatabases(Path(folder)).create()
        store = open_database(Settings.from_environment({"TURNMILL_DATABASE_URL": url}))
        try:
            yield store
        finally:
            await store.close()


def _requests(chat: Chat, model: str) -> Iterator[ModelRequest]:
    """Yield the requests that a worker would have made for each message of the assistant."""
    target = ModelTarget(
        name=model,
        base_url="http://provider",
        api_key="none",
        context_size=1_000_000,
        max_output_tokens=1_000,
    )
    system = prompts.system_prompt(prompts.SYSTEM, chat.instructions)
    head = Message(role="system", content=system, origin="instructions")
    said = tuple(message for message in chat.messages if message.role != "system")
    tools = _tools(said)
    for at, message in enumerate(said):
        if message.role == "assistant":
            yield ModelRequest(target=target, messages=(head, *said[:at]), tools=tools)


def _tools(messages: Sequence[Message]) -> tuple[ToolSchema, ...]:
    """Return the tools that were offered: ours, and the recorded ones if one was called."""
    has_calls = any(message.tool_calls for message in messages)
    environment = {"TURNMILL_TOOLS": airline_tools.SETTING} if has_calls else {}
    return discover_tools(Settings.from_environment(environment)).schemas()
