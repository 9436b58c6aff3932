import asyncio
import sys
from pathlib import Path

import pytest

from shared.errors import ConfigurationError, InvalidInputError
from shared.settings import Settings
from tests.unit.workers.tools.test_registry import make_tool
from workers.tools.hooks import ToolHook
from workers.tools.registry import ToolRegistry
from workers.tools.tool import Tool
from workers.tools.toolbox import Toolbox, open_toolbox

HOOK = ToolHook()


class Server:
    """A server whose tools a test changes."""

    def __init__(self, name: str, *tools: Tool) -> None:
        self.name = name
        self.is_tried = asyncio.Event()
        self.tools = tools

    async def run(self) -> None:
        self.is_tried.set()


def test_tools_of_servers_come_after_the_found_ones() -> None:
    web = Server("web", make_tool("web__get"))
    files = Server("files")
    toolbox = Toolbox(ToolRegistry([make_tool("z")], [HOOK]), [web, files])
    first = toolbox.registry

    assert list(first.names) == ["z", "web__get"]
    assert toolbox.registry is first
    files.tools = (make_tool("files__read"),)
    assert list(toolbox.registry.names) == ["z", "web__get", "files__read"]
    assert toolbox.registry.hooks == (HOOK,)
    web.tools = ()
    assert list(toolbox.registry.names) == ["z", "files__read"]


def test_name_that_is_taken_is_left_out() -> None:
    servers = [Server("a", make_tool("a__x")), Server("a", make_tool("a__x"), make_tool("a__y"))]
    toolbox = Toolbox(ToolRegistry([make_tool("a__y")]), servers)

    assert toolbox.registry.names == ("a__y", "a__x")


def test_tool_of_a_server_that_is_away_is_left_out_of_a_choice() -> None:
    web = Server("web")
    toolbox = Toolbox(ToolRegistry([make_tool("z")]), [web])

    assert toolbox.registry.subset(["z", "web__get"]).names == ("z",)
    web.tools = (make_tool("web__put"),)
    with pytest.raises(InvalidInputError, match="Unknown tools: web__get"):
        toolbox.registry.subset(["z", "web__get"])
    with pytest.raises(InvalidInputError, match="Unknown tools: file__get"):
        toolbox.registry.subset(["file__get"])


def test_missing_sdk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {}}')
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "workers.tools.mcp_server", raising=False)

    with pytest.raises(ConfigurationError, match=r"pip install 'turnmill\[mcp\]'"):
        open_toolbox(Settings.from_environment({"TURNMILL_MCP_FILE": str(path)}), {})
