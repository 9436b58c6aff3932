"""A model that cannot be called, and the one that is called in its place, through the product."""

from collections.abc import Iterator

import pytest

from demo.reply import Fault, FaultKind, Reply, ToolCall
from tests.helpers.client import TurnmillClient
from tests.helpers.model_server import ScriptedModel
from tests.helpers.ports import free_port
from tests.helpers.product import Product
from tests.helpers.talk import Talk, compactions, is_compaction, is_loop

# Nothing here depends on the database.
pytestmark = pytest.mark.parametrize("fresh_product", ["sqlite"], indirect=True)

ANSWER = "The spare answers."
DOWN = Reply(fault=Fault(kind=FaultKind.HTTP_STATUS, status=503))


@pytest.fixture
def client(fresh_product: Product) -> Iterator[TurnmillClient]:
    """Give a client of a product whose calls are made twice."""
    fresh_product.environment |= {
        "LLM_MAX_RETRIES": "1",
        "LLM_RETRY_BASE_S": "0.05",
        "LLM_FIRST_BYTE_TIMEOUT_S": "0.5",
    }
    fresh_product.start_api()
    fresh_product.start_worker()
    with fresh_product.client() as client:
        yield client


def failing(status: int, retry_after: str | None = None, body: str | None = None) -> Reply:
    fault = Fault(kind=FaultKind.HTTP_STATUS, status=status, retry_after=retry_after, body=body)
    return Reply(fault=fault)


@pytest.fixture
def spare(client: TurnmillClient, model: ScriptedModel) -> Talk:
    """Give the model that is fallen back to."""
    talk = Talk(client, model, "spare", context_size=6_000, max_output_tokens=500)
    talk.when(is_loop, Reply(text=ANSWER))
    return talk


def first(client: TurnmillClient, model: ScriptedModel, spare: Talk, **fields: object) -> Talk:
    """Return the model that a turn asks for."""
    talk = Talk(client, model, "first", fallback="spare", **fields)
    talk.helpers = [spare]
    return talk


def falls(talk: Talk, text: str = "Hello.") -> tuple[str, str]:
    """Run a turn that the other model has to answer; return to whom it fell back, and why."""
    turn, events = talk.say(text)
    assert turn["answer"] == ANSWER
    (phase,) = [event.data for event in events if event.event == "phase"]
    assert phase["phase"] == "falling_back"
    return phase["model"], phase["reason"]


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (failing(429), (2, "rate_limit_exceeded")),
        (failing(429, retry_after="3600"), (1, "rate_limit_exceeded")),
        (failing(503), (2, "model_unavailable")),
        (failing(529), (2, "model_unavailable")),
        (Reply(fault=Fault(kind=FaultKind.DISCONNECT)), (2, "model_unavailable")),
        (Reply(fault=Fault(kind=FaultKind.STALL)), (2, "model_timeout")),
    ],
    ids=["429", "429 for long", "503", "529", "disconnect", "silence"],
)
def test_other_model_answers_in_its_place(
    client: TurnmillClient,
    model: ScriptedModel,
    spare: Talk,
    reply: Reply,
    outcome: tuple[int, str],
) -> None:
    talk = first(client, model, spare)
    talk.when(is_loop, reply)
    name, reason = falls(talk)
    assert (len(talk.calls), reason) == outcome
    assert (len(spare.calls), name) == (1, "spare")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "model_request"), (401, "model_authentication"), (500, "model_unavailable")],
)
def test_what_is_no_outage_fails(
    client: TurnmillClient, model: ScriptedModel, spare: Talk, status: int, kind: str
) -> None:
    talk = first(client, model, spare)
    talk.when(is_loop, failing(status))
    turn, _ = talk.say("Hello.")
    assert (turn["status"], turn["error"]["type"]) == ("failed", kind)
    assert spare.calls == []


def test_nobody_listens(client: TurnmillClient, model: ScriptedModel, spare: Talk) -> None:
    talk = first(client, model, spare, base_url=f"http://127.0.0.1:{free_port()}/v1")
    assert falls(talk) == ("spare", "model_unavailable")


def test_second_error_is_told(client: TurnmillClient, model: ScriptedModel, spare: Talk) -> None:
    talk = first(client, model, spare)
    talk.when(is_loop, DOWN)
    model.when(lambda request: request.model == "broken", failing(401))
    client.put_model("first", fallback="broken")
    turn, _ = talk.say("Hello.")
    assert (turn["status"], turn["error"]["type"]) == ("failed", "model_authentication")
    assert "broken" in turn["error"]["message"]
    assert "called as a fallback: first at" in turn["error"]["message"]


def test_rest_of_the_turn_stays_with_it(
    client: TurnmillClient, model: ScriptedModel, spare: Talk
) -> None:
    """A second model call does not try the first model again, and the next turn does."""
    talk = first(client, model, spare)
    talk.when(is_loop, DOWN, DOWN, Reply(text="I am back."))
    call = ToolCall(name="calculator", arguments={"expression": "6*7"})
    client.put_model("first", fallback="other-spare")
    other = Talk(client, model, "other-spare")
    other.when(is_loop, Reply(tool_calls=(call,)), Reply(text="It is 42."))
    other.when(lambda request: not is_loop(request), Reply(text="It is 42."))
    talk.helpers = [other]
    turn, _ = talk.say("How much is 6*7?")
    assert turn["answer"] == "It is 42."
    # Loop twice, then the synthesis.
    assert (len(talk.calls), len(other.calls)) == (2, 3)
    assert talk.say("Are you there?")[0]["answer"] == "I am back."


def test_request_fits_the_window_of_the_other(
    client: TurnmillClient, model: ScriptedModel, spare: Talk
) -> None:
    talk = first(client, model, spare)
    talk.when(is_loop, Reply(text="Noted. " * 200), Reply(text="Noted. " * 200), DOWN)
    talk.when(is_compaction, Reply(text="They talked of many ships."))
    for _ in range(2):
        assert compactions(talk.say("A long story of ships. " * 500)[1]) == []
    assert falls(talk) == ("spare", "model_unavailable")
    (call,) = spare.calls
    assert call.usage is not None
    assert call.usage.prompt_tokens < 6_000


def test_summaries_fall_back_too(client: TurnmillClient, model: ScriptedModel, spare: Talk) -> None:
    client.put_model("writer", role="fast", fallback="spare")
    model.when(lambda request: request.model == "writer", DOWN)
    spare.when(is_compaction, Reply(text="They talked of many ships."))
    talk = Talk(client, model, "small", context_size=6_000, max_output_tokens=500)
    talk.helpers = [spare]
    talk.when(is_loop, Reply(text="Noted."))
    found = [compactions(talk.say("A long story of ships. " * 300)[1]) for _ in range(4)]
    methods = {event["method"] for events in found for event in events}
    assert methods == {"llm"}
    assert spare.compaction_calls
