"""Commands that look at the product's database, beside the running product and without it."""

import json
import subprocess
import sysconfig
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from demo.reply import Reply
from tests.helpers.client import TurnmillClient
from tests.helpers.model_server import ScriptedModel
from tests.helpers.product import Product
from tests.helpers.talk import Talk, is_compaction, texts

Done = subprocess.CompletedProcess[str]
PROGRAM = Path(sysconfig.get_path("scripts")) / "turnmill"
FILLING = "The mill turns slowly while the river carries its leaves past the old weir. " * 30


def turnmill(environment: Mapping[str, str], *arguments: str) -> Done:
    return subprocess.run(
        [str(PROGRAM), *arguments],
        env=dict(environment),
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )


@pytest.fixture
def talk(client: TurnmillClient, shared_model: ScriptedModel) -> Iterator[Talk]:
    """Give a conversation with a small window."""
    name = f"model-{uuid.uuid4().hex}"
    talk = Talk(client, shared_model, name, context_size=6_000, max_output_tokens=1_000)
    talk.when(is_compaction, Reply(text="They spoke of the mill."))
    yield talk
    client.delete_model(name)


def test_context_shows_the_next_request(product: Product, talk: Talk) -> None:
    for number in range(9):
        talk.say(f"Question {number}. {FILLING}", instructions="Be brief.", tools=["calculator"])
    assert talk.compaction_calls
    conversation, calls = str(talk.conversation_id), len(talk.calls)

    done = turnmill(product.environment, "context", conversation, "--json", "--input=And now?")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    table = turnmill(product.environment, "context", conversation).stdout

    assert len(talk.calls) == calls
    # The messages are those that the next turn sends.
    talk.client.put_model(talk.model, context_size=60_000, max_output_tokens=1_000)
    talk.say("And now?", instructions="Be brief.", tools=["calculator"])
    sent = talk.loop_calls[-1]
    assert [message["text"] for message in shown["messages"]] == texts(sent.request)
    kinds = [message["kind"] for message in shown["messages"]]
    assert kinds[:2] == ["instructions", "summary"]
    assert kinds[-1] == "query"
    assert set(kinds[2:-1]) == {"history"}
    assert [message["pinned"] for message in shown["messages"]] == [
        kind in ("instructions", "query") for kind in kinds
    ]
    assert shown["model"] == talk.model
    assert shown["tools"] == 1
    # As the provider counted it.
    assert sent.usage is not None
    assert 0.95 <= shown["total_tokens"] / sent.usage.prompt_tokens <= 1.25
    assert "1-" in table
    assert "They spoke of the mill." in table


def test_context_tells_what_would_be_folded(product: Product, talk: Talk) -> None:
    for number in range(4):
        talk.say(f"Question {number}. {FILLING}")
    assert not talk.compaction_calls
    talk.client.put_model(talk.model, context_size=3_000, max_output_tokens=1_000)

    done = turnmill(product.environment, "context", str(talk.conversation_id), "--json")

    messages = json.loads(done.stdout)["messages"]
    folded = [message["position"] for message in messages if message["to_be_summarized"]]
    talk.say("Go on.")
    (call,) = talk.compaction_calls
    assert folded == list(range(1, len(folded) + 1))
    assert call.request.last_user_text.count("User: Question") == (len(folded) + 1) // 2


@pytest.mark.parametrize("product", ["sqlite"], indirect=True)
def test_unknown_conversation_is_one_sentence(product: Product) -> None:
    done = turnmill(product.environment, "context", "conv_nothing")
    assert done.returncode == 2
    assert done.stderr == "turnmill: There is no conversation conv_nothing: check the id\n"


def test_models_are_set_listed_and_deleted(product: Product, client: TurnmillClient) -> None:
    name = f"model/{uuid.uuid4().hex}"
    limits = ("--context-size", "16000", "--max-output-tokens", "2000")

    added = turnmill(product.environment, "models", "set", name, "--role", "fast", *limits)
    listed = turnmill(product.environment, "models", "list", "--json")
    stored = client.call("GET", f"/v1/models/{name}")
    replaced = turnmill(product.environment, "models", "set", name)
    table = turnmill(product.environment, "models", "list")
    deleted = turnmill(product.environment, "models", "delete", name)
    again = turnmill(product.environment, "models", "delete", name)

    assert added.stdout == f"{name} is added.\n", added.stderr
    assert (stored["role"], stored["context_size"], stored["max_output_tokens"]) == (
        "fast",
        16_000,
        2_000,
    )
    assert [item for item in json.loads(listed.stdout) if item["name"] == name]
    dropped = "--role, --context-size, --max-output-tokens"
    assert replaced.stdout == f"{name} is replaced. No longer set: {dropped}.\n"
    assert name in table.stdout
    assert deleted.returncode == 0
    assert again.returncode == 2
    assert again.stderr.startswith(f"turnmill: There is no model {name}")


@pytest.mark.parametrize("product", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("m", "--context-size", "10"), "--context-size must be at least 1000"),
        (("m", "--base-url", "ftp://x"), "--base-url must be a URL"),
        (("m", "--api-key-env", "PATH"), "--api-key-env must match"),
        (("m", "--context-size", "4000", "--max-output-tokens", "4000"), "must be less than"),
        ((" ",), "must not be blank"),
        (("a\nb",), "must not hold line breaks"),
        (("m", "--fallback", "m"), "must be another model"),
        (("m", "--max-in-flight", "0"), "--max-in-flight must be at least 1"),
    ],
)
def test_model_that_makes_no_sense_is_refused(
    product: Product, arguments: tuple[str, ...], sentence: str
) -> None:
    done = turnmill(product.environment, "models", "set", *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [("models", "list"), ("context", "conv_x")])
def test_without_a_database_they_say_what_makes_one(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    environment = {"TURNMILL_DATA_DIR": str(tmp_path / "none"), "PATH": "/usr/bin:/bin"}
    missing = turnmill(environment, *command)
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "turnmill.sqlite3").touch()
    empty = turnmill(environment, *command)

    for done in (missing, empty):
        assert done.returncode == 2
        assert "turnmill migrate" in done.stderr
        assert len(done.stderr.splitlines()) == 1
