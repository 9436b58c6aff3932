"""A conversation held through the running product, with a model of its own name."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Self

from sqlalchemy import Connection, Engine

from demo.protocol import ChatRequest
from demo.reply import Reply, Usage
from shared.database import create_sync_engine
from shared.settings import Settings
from tests.helpers.client import Json, TurnmillClient
from tests.helpers.fold import assert_agrees, fold
from tests.helpers.model_server import RecordedCall, ScriptedModel
from tests.helpers.product import Product
from tests.helpers.sse import ServerEvent

SUMMARY_HEADING = "[Conversation summary]"


def is_compaction(request: ChatRequest) -> bool:
    """Tell whether a request asks for a summary."""
    return "<record>" in request.last_user_text


def is_loop(request: ChatRequest) -> bool:
    """Tell whether a request is the loop's: tools are offered."""
    return bool(request.tools)


def texts(request: ChatRequest) -> list[str]:
    """Return the texts of a request's messages."""
    return [message.text for message in request.messages]


class Talk:
    """One conversation with one model, which nobody else calls.

    window: what the model is configured with: `context_size`, `max_output_tokens`, `base_url`.
    """

    def __init__(
        self, client: TurnmillClient, server: ScriptedModel, model: str, **window: object
    ) -> None:
        self.client = client
        self.model = model
        self.conversation_id: str | None = None
        # Those of other models that this one's turns call.
        self.helpers: list[Talk] = []
        self._server = server
        client.put_model(model, **window)

    def when(self, is_meant: Callable[[ChatRequest], bool], *replies: Reply) -> None:
        """Have this model's matching calls answered so; the last reply stays."""
        self._server.when(
            lambda request: request.model == self.model and is_meant(request), *replies
        )

    def say(self, text: str, **fields: object) -> tuple[Json, list[ServerEvent]]:
        """Run a turn to its end, and check what its events say and that its usage is exact."""
        before = [len(talk.calls) for talk in (self, *self.helpers)]
        if self.conversation_id is not None:
            fields["conversation_id"] = self.conversation_id
        with self.client.stream_turn(text, model=self.model, **fields) as stream:
            events = stream.read_all()
        turn = self.client.get_turn(events[0].data["turn_id"])
        self.conversation_id = turn["conversation_id"]
        assert_agrees(fold(events), turn)
        talks = zip((self, *self.helpers), before, strict=True)
        made = [call for talk, count in talks for call in talk.calls[count:]]
        assert_exact(turn["usage"], [call for call in made if call.is_finished])
        return turn, events

    @property
    def calls(self) -> list[RecordedCall]:
        """All calls of this model."""
        return [call for call in self._server.calls if call.request.model == self.model]

    @property
    def loop_calls(self) -> list[RecordedCall]:
        """The calls of loops."""
        return [call for call in self.calls if is_loop(call.request)]

    @property
    def compaction_calls(self) -> list[RecordedCall]:
        """The calls that ask for summaries."""
        return [call for call in self.calls if is_compaction(call.request)]


def compactions(events: list[ServerEvent]) -> list[Json]:
    """Return what the compact events of a turn say."""
    return [event.data for event in events if event.event == "compact"]


def assert_exact(usage: Json, calls: list[RecordedCall]) -> None:
    """Check that a turn's usage is what the server counted, as far as it could be reported."""
    by_purpose = list(usage["by_purpose"].values())
    if any(counts["estimated_calls"] for counts in by_purpose):
        return
    whole = reported(calls)
    for name in ("input_tokens", "output_tokens"):
        assert usage[name] == whole[name] == sum(counts[name] for counts in by_purpose)
    assert sum(counts["calls"] for counts in by_purpose) == whole["calls"]


def reported(calls: list[RecordedCall]) -> Json:
    """Return what calls used, as a turn's usage says it."""
    used = sum(
        (call.usage for call in calls if call.usage is not None),
        start=Usage(prompt_tokens=0, completion_tokens=0),
    )
    return {
        "calls": len(calls),
        "input_tokens": used.prompt_tokens,
        "output_tokens": used.completion_tokens,
    }


class Store(AbstractContextManager["Store"]):
    """The product's database, read and changed from outside of it."""

    def __init__(self, product: Product) -> None:
        url = product.environment["TURNMILL_DATABASE_URL"]
        self._engine: Engine = create_sync_engine(
            Settings.from_environment({"TURNMILL_DATABASE_URL": url})
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.dispose()

    def run(self, work: Callable[[Connection], Any]) -> Any:  # noqa: ANN401 - as the work says
        """Do something in a transaction and return what it returns."""
        with self._engine.begin() as connection:
            return work(connection)
