"""The product against a model server that nobody here wrote, which judges how it is called."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from llmock.journal import RequestRecord
from llmock.ratelimit import LimitSettings, RateLimiter
from llmock.scenarios import Behavior, Delay, Fail, Reply, StreamFault, ToolCall, ToolFault
from llmock.testing import LLMockServer
from llmock.verdict import Finding, judge

from tests.helpers.client import Json, TurnmillClient
from tests.helpers.fold import assert_agrees, fold
from tests.helpers.product import Product
from tests.helpers.sse import ServerEvent

ANSWER = "The mill stands by the river, and its wheel turns slowly all day long."
# The loop's tool call, its brief answer, and the synthesis.
SCRIPT = (
    Reply(tool_calls=(ToolCall("calculator", {"expression": "17 * 23"}),)),
    Reply(text="It is 391."),
    Reply(text=ANSWER),
)
# Longer than the worker waits for the next chunk.
STALL_S = 5.0


@dataclass(frozen=True)
class Scenario:
    """What goes wrong, and how a turn has to end all the same."""

    name: str
    faults: Sequence[Behavior]
    error: str | None = None


SCENARIOS = (
    Scenario("nothing", ()),
    Scenario("slow", (Delay(0.3),)),
    Scenario("rate limit", (Fail(429, retry_after=1.0),)),
    Scenario("rate limits in a row", (Fail(429, retry_after=0.4, times=2),)),
    Scenario("overloaded", (Fail(503, retry_after=0.4),)),
    # One at a time: of two random pauses, the second one may be the shorter, which the server
    # would take for no back-off.
    Scenario("server error", (Fail(500),)),
    Scenario("bad gateway", (Fail(502),)),
    Scenario("disconnect", (StreamFault("disconnect", after_chunks=2),)),
    Scenario("truncate", (StreamFault("truncate", after_chunks=2),)),
    Scenario("malformed chunk", (StreamFault("malformed", after_chunks=1),)),
    Scenario("stall", (StreamFault("stall", after_chunks=2, stall_seconds=STALL_S),)),
    Scenario("bad request", (Fail(400),), error="model_request"),
    Scenario("bad key", (Fail(401),), error="model_authentication"),
)
# They take the place of the first reply.
TOOL_FAULTS = (ToolFault("malformed_arguments"), ToolFault("unknown_tool"))


@pytest.fixture
def server() -> Iterator[LLMockServer]:
    """Give the server."""
    with LLMockServer() as server:
        yield server


@pytest.fixture
def mocked(fresh_product: Product, server: LLMockServer) -> Product:
    """Give a running product whose model is the server."""
    fresh_product.environment["LLM_BASE_URL"] = server.base_url("openai")
    fresh_product.environment["LLM_CHUNK_TIMEOUT_S"] = "2"
    fresh_product.start_api()
    fresh_product.start_worker()
    return fresh_product


def run_turn(client: TurnmillClient, text: str, **fields: object) -> tuple[Json, list[ServerEvent]]:
    with client.stream_turn(text, **fields) as stream:
        events = stream.read_all()
    turn = client.get_turn(events[0].data["turn_id"])
    assert_agrees(fold(events), turn)
    return turn, events


@pytest.mark.parametrize("fresh_product", ["postgres"], indirect=True)
def test_every_fault_is_answered_and_the_verdict_is_clean(
    mocked: Product, server: LLMockServer
) -> None:
    with mocked.client() as client:
        for scenario in SCENARIOS:
            server.state.scenarios.clear()
            # A broken answer was one all the same: it is given again.
            broken = [fault for fault in scenario.faults if isinstance(fault, StreamFault)]
            server.state.scenarios.add(*SCRIPT[: len(broken)], *SCRIPT, *scenario.faults)
            turn, _ = run_turn(client, f"What is 17 * 23? ({scenario.name})")
            if scenario.error:
                assert turn["status"] == "failed", scenario
                assert turn["error"]["type"] == scenario.error, scenario
            else:
                assert (turn["status"], turn["answer"]) == ("completed", ANSWER), scenario
        for fault in TOOL_FAULTS:
            server.state.scenarios.clear()
            server.state.scenarios.add(fault)
            turn, _ = run_turn(client, f"What is 17 * 23? ({fault.kind})")
            assert turn["status"] == "completed", fault
            assert turn["steps"][0]["error"], fault

    records = server.state.journal.records()
    verdict = judge(records)
    assert verdict.faults >= len(SCENARIOS) - 1
    assert [item for item in verdict.findings if not is_late(item, records)] == []


def is_late(finding: Finding, records: Sequence[RequestRecord]) -> bool:
    """Tell whether the server only did not pair a broken answer with the request made after it.

    It may have sent all of the answer, or have noticed that its reader left, no sooner than the
    same request came again.
    """
    if finding.code != "malformed_chunk_ignored":
        return False
    broken = next(record for record in records if record.seq == finding.seqs[0])
    return any(
        record.fingerprint == broken.fingerprint and record.seq > broken.seq for record in records
    )


@pytest.mark.parametrize("fresh_product", ["sqlite"], indirect=True)
def test_its_window_is_learned(mocked: Product) -> None:
    with LLMockServer() as narrow, mocked.client() as client:
        narrow.state.limiter = RateLimiter(LimitSettings(context_window=6_000))
        client.put_model(
            "narrow",
            base_url=narrow.base_url("openai"),
            context_size=32_000,
            max_output_tokens=1_000,
        )
        conversation: Json = {}
        for number in range(20):
            text = f"Question {number}. " + "The wheel turns and turns. " * 60
            turn, _ = run_turn(client, text, model="narrow", tools=[], **conversation)
            assert turn["status"] == "completed", turn["error"]
            conversation = {"conversation_id": turn["conversation_id"]}

        records = narrow.state.journal.records()
        refused = [record for record in records if record.status >= 400]
        assert len(refused) == 1
        judge(records).assert_ok(strict=True)
