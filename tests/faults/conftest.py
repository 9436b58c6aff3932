"""What fault tests share: a script in which the model uses a tool, then answers in two calls."""

from collections.abc import Callable
from pathlib import Path

import pytest

from demo.protocol import ChatRequest
from demo.reply import Reply, ToolCall
from tests.helpers.model_server import ScriptedModel

Matches = Callable[[ChatRequest], bool]

ANSWER = "The gate is open, and here is the whole answer to your question."


def asks_for_tool(request: ChatRequest) -> bool:
    """Tell whether this is the loop's first call: tools are offered, none has been used."""
    return bool(request.tools) and request.messages[-1].role == "user"


def has_result(request: ChatRequest) -> bool:
    """Tell whether this is the loop's call after the tool's result."""
    return bool(request.tools) and request.messages[-1].role == "tool"


def is_synthesis(request: ChatRequest) -> bool:
    """Tell whether this is the call that writes the answer."""
    return not request.tools


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Give the path of the file that lets the holding tools go on."""
    return tmp_path / "gate"


def script(model: ScriptedModel, gate: Path, tool: str) -> None:
    """Let the model ask for a holding tool, then end its loop, then write ANSWER."""
    call = ToolCall(name=tool, arguments={"gate": str(gate)}, id="call_gate")
    model.when(asks_for_tool, Reply(tool_calls=(call,)))
    model.when(has_result, Reply(text="brief"))
    model.when(is_synthesis, Reply(text=ANSWER))
