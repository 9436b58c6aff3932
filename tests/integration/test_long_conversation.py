"""A conversation of two hundred turns in a window that holds less than a third of it."""

import statistics
import uuid
from collections.abc import Iterator
from itertools import cycle, islice, pairwise, takewhile
from typing import Any, Self

from sqlalchemy import Connection, event

from demo.protocol import ChatRequest
from demo.reply import Reply, ToolCall
from shared.ids import ConversationId
from tests.helpers.client import Json, TurnmillClient
from tests.helpers.data import load_multilingual_chats
from tests.helpers.model_server import RecordedCall, ScriptedModel
from tests.helpers.product import Product
from tests.helpers.talk import Store, Talk, is_compaction, is_loop
from workers.context.db_memory import StoredHistory
from workers.react.engine import load_history

TURNS = 200
WINDOW = {"context_size": 16_000, "max_output_tokens": 2_000}
# Every seventh turn uses a tool.
TOOL_TURNS = 7
SUMMARY = "Riddles, headlines and letters were asked for in six languages, and answered. " * 12
SUM = ToolCall(name="calculator", arguments={"expression": "17 * 23"}, id="call_sum")


def test_two_hundred_turns(
    product: Product, client: TurnmillClient, shared_model: ScriptedModel
) -> None:
    talk = Talk(client, shared_model, f"model-{uuid.uuid4().hex}", **WINDOW)
    talk.when(is_compaction, Reply(text=SUMMARY))
    exchanges = [item for chat in load_multilingual_chats() for item in chat.exchanges]
    # Each loop's first call, by turn.
    firsts: list[RecordedCall] = []
    for number, (one, two) in enumerate(islice(pairwise(cycle(exchanges)), TURNS), start=1):
        question = f"Turn {number}. {one.question}\n\n{two.question}"
        script(talk, number, Reply(text=f"{one.answer}\n\n{two.answer}"))
        seen = len(talk.calls)
        turn, _ = talk.say(question)

        assert turn["status"] == "completed"
        assert turn["answer"] == f"{one.answer}\n\n{two.answer}"
        calls = talk.calls[seen:]
        for call in calls:
            if not is_compaction(call.request):
                assert question in call.request.last_user_text
        firsts.append(next(call for call in calls if is_loop(call.request)))

    # At most five calls per hundred turns.
    assert 1 <= len(talk.compaction_calls) <= TURNS * 5 // 100
    shares = [common_share(before, after) for before, after in pairwise(firsts)]
    assert statistics.mean(shares) >= 0.9
    assert not [item for item in shared_model.configured_refusals if talk.model in str(item.raw)]
    with Store(product) as store:
        check_reads(store, talk)
    client.delete_model(talk.model)


def script(talk: Talk, number: int, answer: Reply) -> None:
    """Have one turn answered, some after a tool call."""
    is_tool_turn = number % TOOL_TURNS == 0
    loop = (Reply(tool_calls=(SUM,)), Reply(text="brief")) if is_tool_turn else (answer,)
    talk.when(lambda request: is_turn(request, number), *loop)
    talk.when(lambda request: f"Request:\nTurn {number}. " in request.last_user_text, answer)


def is_turn(request: ChatRequest, number: int) -> bool:
    return is_loop(request) and request.last_user_text.startswith(f"Turn {number}. ")


def common_share(before: RecordedCall, after: RecordedCall) -> float:
    """Return the share of a request's bytes with which the next one begins."""
    sent = messages_as_bytes(before)
    same = takewhile(lambda pair: pair[0] == pair[1], zip(sent, after.raw, strict=False))
    return sum(1 for _ in same) / len(sent)


def messages_as_bytes(call: RecordedCall) -> bytes:
    """Return a body up to the end of its last message; what follows are parameters."""
    end = call.raw.rindex(b'],"max_tokens"')
    return call.raw[:end]


def check_reads(store: Store, talk: Talk) -> None:
    """Check that the last load read the messages after the summary, and touched no other."""
    conversation_id = ConversationId(str(talk.conversation_id))
    query_at = 2 * TURNS - 1

    def load(connection: Connection) -> tuple[StoredHistory, list[int]]:
        with TouchedRows(connection, "messages") as touched:
            history = load_history(connection, conversation_id, query_at)
        return history, touched.counts()

    history, touched = store.run(load)
    assert history.checkpoint is not None
    newer = range(history.checkpoint.until_position + 1, query_at)
    assert 0 < len(newer) < query_at // 2
    assert [message.position for message in history.messages] == list(newer)
    assert touched == [len(newer)]
    # That is what was sent: instructions, summary, the newer messages, the query.
    last = next(call for call in talk.loop_calls if is_turn(call.request, TURNS))
    assert len(last.request.messages) == 2 + len(newer) + 1


class TouchedRows:
    """Counts the rows of a table that each query of a connection has to look at."""

    def __init__(self, connection: Connection, table: str) -> None:
        self._connection = connection
        self._table = table
        self._statements: list[tuple[str, object]] = []

    def __enter__(self) -> Self:
        event.listen(self._connection, "before_cursor_execute", self._note)
        return self

    def __exit__(self, *_: object) -> None:
        event.remove(self._connection, "before_cursor_execute", self._note)

    def counts(self) -> list[int]:
        """Return the rows looked at, for each query that reads the table."""
        return [self._count(*statement) for statement in self._statements]

    def _note(self, *given: object) -> None:
        _, _, statement, parameters, *_ = given
        if f"FROM {self._table}" in str(statement):
            self._statements.append((str(statement), parameters))

    def _count(self, statement: str, parameters: Any) -> int:  # noqa: ANN401 - the driver's
        run = self._connection.exec_driver_sql
        if self._connection.dialect.name == "sqlite":
            # The index bounds both ends: what is looked at is what is returned.
            (step,) = run(f"EXPLAIN QUERY PLAN {statement}", parameters)
            assert "conversation_id=? AND position>? AND position<?" in step.detail
            return len(run(statement, parameters).all())
        # A table of a few pages would be read whole, which says nothing of a large one.
        run("SET LOCAL enable_seqscan = off")
        ((plan,),) = run(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
        return sum(_looked_at(plan[0]["Plan"], self._table))


def _looked_at(node: Json, table: str) -> Iterator[int]:
    if node.get("Relation Name") == table:
        yield node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
    for child in node.get("Plans", []):
        yield from _looked_at(child, table)
