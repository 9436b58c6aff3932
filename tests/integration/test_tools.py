"""Tools as the running product offers and runs them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from demo.protocol import ChatRequest
from demo.reply import Reply, ToolCall
from tests.helpers.model_server import ScriptedModel
from tests.helpers.product import Product

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "turnmill-stock"
LONG = json.dumps("x" * 60_000)
sqlite_only = pytest.mark.parametrize("fresh_product", ["sqlite"], indirect=True)


@pytest.fixture(scope="module")
def installed_example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the example package with pip; return the folder to have on the module path."""
    target = tmp_path_factory.mktemp("site-packages")
    # A copy: the build leaves nothing in the tree.
    source = tmp_path_factory.mktemp("source")
    for path in EXAMPLE.iterdir():
        (source / path.name).write_bytes(path.read_bytes())
    options = (
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--target",
        str(target),
    )
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return target


def results(request: ChatRequest) -> dict[str, str]:
    """Return the tool results that a request shows the model, by the call's id."""
    return {
        str(message.tool_call_id): message.text
        for message in request.messages
        if message.role == "tool"
    }


@sqlite_only
def test_package_with_an_entry_point(
    fresh_product: Product,
    model: ScriptedModel,
    installed_example: Path,
) -> None:
    fresh_product.environment |= {
        "PYTHONPATH": str(installed_example),
        "TURNMILL_TOOLS": "@stock",
        "TURNMILL_BUILTIN_TOOLS": "none",
    }
    fresh_product.start_api()
    fresh_product.start_worker()
    calls = (
        ToolCall(name="stock_level", arguments={"item": "tea"}, id="level"),
        ToolCall(name="reserve_stock", arguments={"item": "tea", "pieces": 2}, id="reserve"),
        ToolCall(name="stock_level", arguments={"item": "milk"}, id="unknown"),
    )
    model.respond_with(Reply(tool_calls=calls), Reply(text="brief"), Reply(text="done"))

    with fresh_product.client() as client:
        turn = client.get_turn(client.post_turn("How much tea?")["id"], wait_s=30)

    assert turn["status"] == "completed"
    first, second, *_ = model.calls
    assert first.request.tool_names == ("stock_level", "reserve_stock")
    assert results(second.request) == {
        "level": "12",
        "reserve": "Reserved 2 pieces of tea",
        "unknown": "There is no milk. Items: tea, coffee",
    }


@sqlite_only
def test_builtin_tools_in_the_worker(fresh_product: Product, model: ScriptedModel) -> None:
    fresh_product.start_api()
    fresh_product.start_worker()
    calls = (
        ToolCall(name="text_search", arguments={"words": "ELDERBERRY"}, id="search"),
        ToolCall(name="json_query", arguments={"expression": "a", "text": '{"a": 1}'}, id="query"),
        ToolCall(name="http_get", arguments={"url": fresh_product.url}, id="get"),
        ToolCall(name="json_query", arguments={"expression": "@", "text": LONG}, id="long"),
    )
    model.respond_with(
        Reply(text="noted"),
        Reply(tool_calls=calls),
        Reply(text="brief"),
        Reply(text="done"),
    )

    with fresh_product.client() as client:
        first = client.get_turn(client.post_turn("My word is elderberry.")["id"], wait_s=30)
        posted = client.post_turn("My word?", conversation_id=first["conversation_id"])
        turn = client.get_turn(posted["id"], wait_s=30)

    assert turn["status"] == "completed"
    found = results(model.calls[2].request)
    assert found["search"].startswith("[1] user, ")
    assert found["search"].endswith(": My word is elderberry.")
    assert found["query"] == "1"
    assert found["get"] == "127.0.0.1 must not be reached: 127.0.0.1 is no public address"
    assert (len(found["long"]), found["long"][-11:]) == (50_000, "[Truncated]")
    step = turn["steps"][-1]
    assert (len(step["tool_args"]), len(step["observation"])) == (10_000, 4_000)
