"""Tools of MCP servers: real processes that speak the protocol over pipes and over HTTP."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from demo.protocol import ChatRequest
from demo.reply import Reply, ToolCall
from shared.settings import Settings
from tests.helpers.model_server import ScriptedModel
from tests.helpers.ports import free_port
from tests.helpers.product import Death, Product
from tests.helpers.waiting import wait_until, wait_until_async
from tests.unit.workers.tools.calls import CONTEXT
from workers.tools.execution import run_tool
from workers.tools.outcome import ToolOutcome
from workers.tools.toolbox import Toolbox, open_toolbox

SCRIPT = str(Path(__file__).parents[1] / "helpers" / "mcp_server.py")
WAIT_S = 20
NAMES = (
    "notes__add",
    # The server calls it count.once.
    "notes__count_once",
    "notes__count_again",
    "notes__fail",
    "notes__long",
    "notes__picture",
    "notes__secret",
)


class Notes:
    """A server's folder of notes, and the file that names the server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._server: subprocess.Popen[bytes] | None = None

    def lines(self, name: str) -> list[int]:
        path = self.folder / name
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []

    def hang(self) -> None:
        (self.folder / "hang").touch()

    def go_on(self) -> None:
        (self.folder / "hang").unlink()

    def write_file(self, **server: object) -> Path:
        path = self.folder / "mcp.json"
        path.write_text(json.dumps({"mcpServers": {"notes": server}}))
        return path

    def stdio(self, **more: object) -> Path:
        return self.write_file(command=sys.executable, args=[SCRIPT, str(self.folder)], **more)

    def http(self) -> Path:
        return self.write_file(url=f"http://127.0.0.1:{self.port}/mcp", headers={"X-Key": "${KEY}"})

    def start_server(self) -> None:
        """Start the server that is spoken to over HTTP, and wait until it listens."""
        self._server = subprocess.Popen([sys.executable, SCRIPT, str(self.folder), str(self.port)])
        wait_until(self._listens, timeout_s=WAIT_S, message="the MCP server does not listen")

    def stop_server(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()

    def _listens(self) -> bool:
        with contextlib.suppress(OSError):
            return asyncio.run(_can_connect(self.port))
        return False


async def _can_connect(port: int) -> bool:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    return True


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Notes]:
    notes = Notes(tmp_path)
    yield notes
    notes.stop_server()


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Toolbox]:
    """Run what a worker runs of the servers that a file names."""
    settings = Settings.from_environment(
        {"TURNMILL_MCP_FILE": str(path), "TURNMILL_BUILTIN_TOOLS": "none"},
    )
    toolbox = open_toolbox(settings, {"KEY": "value"})
    tasks = [asyncio.create_task(server.run()) for server in toolbox.servers]
    try:
        await asyncio.wait_for(toolbox.wait_tried(), WAIT_S)
        yield toolbox
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def call(toolbox: Toolbox, name: str, arguments: str = "{}") -> ToolOutcome:
    return await run_tool(toolbox.registry, f"notes__{name}", arguments, CONTEXT, timeout_s=WAIT_S)


def is_running(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


@pytest.fixture(params=["stdio", "http"])
def path(request: pytest.FixtureRequest, notes: Notes) -> Path:
    """Give the file of a server that can be reached, over each transport in turn."""
    if request.param == "stdio":
        return notes.stdio()
    # In a thread of its own: the test's loop is not running yet.
    notes.start_server()
    return notes.http()


async def test_tools_are_offered_with_their_own_schemas(path: Path) -> None:
    async with connected(path) as toolbox:
        registry = toolbox.registry
        add = registry.find("notes__add")

        assert registry.names == NAMES
        assert toolbox.registry is registry
        assert add is not None
        assert add.description == "Add two numbers."
        assert add.parameters["required"] == ["left", "right"]
        assert not add.is_repeatable
        again = registry.find("notes__count_again")
        assert again is not None
        assert again.is_repeatable


async def test_results_become_text(path: Path) -> None:
    async with connected(path) as toolbox:
        added = await call(toolbox, "add", '{"left": 1, "right": 2}')
        assert (added.content, added.is_error) == ("3", False)
        picture = await call(toolbox, "picture")
        assert picture.content == "a dot\n[image/png that cannot be shown]"
        long = await call(toolbox, "long")
        assert (len(long.content), long.content[-11:]) == (50_000, "[Truncated]")


async def test_failures_are_the_models_to_see(path: Path) -> None:
    async with connected(path) as toolbox:
        failed = await call(toolbox, "fail")
        wrong = await call(toolbox, "add", '{"left": "many"}')

    assert failed.is_error
    assert "on purpose" in failed.content
    assert wrong.is_error
    assert "right" in wrong.content


async def test_server_sees_only_the_environment_it_is_given(
    notes: Notes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LLM_API_KEY", "secret")
    async with connected(notes.stdio(env={"GIVEN": "a ${KEY}"})) as toolbox:
        assert (await call(toolbox, "secret")).content == "a value None"


async def test_own_process_ends_with_the_worker(notes: Notes) -> None:
    async with connected(notes.stdio()):
        (pid,) = notes.lines("starts")
        assert is_running(pid)

    assert not is_running(pid)


async def test_process_that_died_is_started_again(notes: Notes) -> None:
    async with connected(notes.stdio()) as toolbox:
        await call(toolbox, "count_once")
        os.kill(notes.lines("starts")[0], signal.SIGKILL)
        await wait_until_async(
            lambda: len(notes.lines("starts")) == 2,
            timeout_s=WAIT_S,
            message="the server is not started again",
        )

        assert (await call(toolbox, "count_once")).content == "called 2 times"
    first, second = notes.lines("starts")
    assert notes.lines("calls") == [first, second]


@pytest.mark.parametrize(
    ("name", "is_error", "calls"),
    [("count_again", False, 2), ("count_once", True, 1)],
)
async def test_connection_lost_in_a_call(
    notes: Notes,
    name: str,
    *,
    is_error: bool,
    calls: int,
) -> None:
    notes.hang()
    async with connected(notes.stdio()) as toolbox:
        outcome = asyncio.create_task(call(toolbox, name))
        await wait_until_async(
            lambda: bool(notes.lines("calls")),
            timeout_s=WAIT_S,
            message="the call does not reach the server",
        )
        notes.go_on()
        os.kill(notes.lines("starts")[0], signal.SIGKILL)
        result = await outcome

    assert result.is_error is is_error
    assert len(notes.lines("calls")) == calls
    if is_error:
        assert "its outcome is unknown" in result.content


async def test_http_server_that_comes_back_is_used_again(
    notes: Notes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("workers.tools.mcp_server.AWAY_S", 0.1)
    await asyncio.to_thread(notes.start_server)
    async with connected(notes.http()) as toolbox:
        assert not (await call(toolbox, "add", '{"left": 1, "right": 2}')).is_error
        notes.stop_server()
        lost = await call(toolbox, "add", '{"left": 1, "right": 2}')
        away = await call(toolbox, "add", '{"left": 1, "right": 2}')
        assert lost.is_error
        assert away.is_error
        assert "cannot be reached now" in away.content
        assert toolbox.registry.names == NAMES

        await asyncio.to_thread(notes.start_server)
        await wait_until_async(
            lambda: _answers(toolbox),
            timeout_s=WAIT_S,
            message="the server is not used again",
        )


class SessionServer:
    """A server of the protocol's earlier versions, which forgets its sessions."""

    def __init__(self) -> None:
        self.sessions: list[str] = []
        self.called_in: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        message = await request.json()
        method = message["method"]
        session = request.headers.get("Mcp-Session-Id", "")
        if method == "initialize":
            self.sessions.append(f"session-{len(self.sessions)}")
            session = self.sessions[-1]
        elif session not in self.sessions[-1:]:
            error = {"code": -32_001, "message": "Session not found"}
            body = {"jsonrpc": "2.0", "id": message.get("id"), "error": error}
            return web.json_response(body, status=404 if session else 400)
        if "id" not in message:
            return web.Response(status=202)
        if method == "tools/call":
            self.called_in.append(session)
        body = {"jsonrpc": "2.0", "id": message["id"], "result": SESSION_RESULTS[method]}
        return web.json_response(body, headers={"Mcp-Session-Id": session})


SESSION_RESULTS: dict[str, dict[str, object]] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "old", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "act", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
}


async def test_forgotten_session_is_opened_again(notes: Notes) -> None:
    server = SessionServer()
    app = web.Application()
    app.router.add_post("/mcp", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", notes.port).start()

    async with connected(notes.http()) as toolbox:
        assert (await call(toolbox, "act")).content == "done"
        server.sessions.append("after a restart")
        assert (await call(toolbox, "act")).content == "done"

    assert server.called_in == ["session-0", "session-2"]
    await runner.cleanup()


async def _answers(toolbox: Toolbox) -> bool:
    return (await call(toolbox, "add", '{"left": 1, "right": 2}')).content == "3"


async def test_server_away_at_the_start_is_offered_once_it_is_there(notes: Notes) -> None:
    async with connected(notes.http()) as toolbox:
        assert not toolbox.registry.names
        await asyncio.to_thread(notes.start_server)
        await wait_until_async(
            lambda: toolbox.registry.names == NAMES,
            timeout_s=WAIT_S,
            message="the tools are not offered",
        )


@pytest.mark.parametrize("command", ["no-such-command", "cat", "false"])
async def test_command_that_is_no_server_is_away(notes: Notes, command: str) -> None:
    settings = {"TURNMILL_MCP_CONNECT_TIMEOUT_S": "1", "TURNMILL_BUILTIN_TOOLS": "none"}
    settings["TURNMILL_MCP_FILE"] = str(notes.write_file(command=command))
    toolbox = open_toolbox(Settings.from_environment(settings), {})
    (server,) = toolbox.servers
    task = asyncio.create_task(server.run())
    await asyncio.wait_for(toolbox.wait_tried(), WAIT_S)

    assert toolbox.registry.names == ()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


def results(request: ChatRequest) -> dict[str, str]:
    return {
        str(message.tool_call_id): message.text
        for message in request.messages
        if message.role == "tool"
    }


@pytest.mark.parametrize("fresh_product", ["sqlite"], indirect=True)
def test_turn_with_tools_of_a_server(
    fresh_product: Product,
    model: ScriptedModel,
    notes: Notes,
) -> None:
    fresh_product.environment["TURNMILL_MCP_FILE"] = str(notes.stdio())
    fresh_product.start_api()
    worker = fresh_product.start_worker()
    calls = (ToolCall(name="notes__add", arguments={"left": 20, "right": 22}, id="add"),)
    model.respond_with(Reply(tool_calls=calls), Reply(text="brief"), Reply(text="42"))

    with fresh_product.client() as client:
        posted = client.post_turn("Add 20 and 22", tools=["notes__add"])
        turn = client.get_turn(posted["id"], wait_s=30)

    assert turn["status"] == "completed"
    assert model.calls[0].request.tool_names == ("notes__add",)
    assert results(model.calls[1].request) == {"add": "42"}
    (pid,) = notes.lines("starts")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert not is_running(pid)


@pytest.mark.parametrize("fresh_product", ["sqlite"], indirect=True)
def test_call_of_a_lost_worker_whose_server_is_gone(
    fresh_product: Product,
    model: ScriptedModel,
    notes: Notes,
) -> None:
    fresh_product.environment["TURNMILL_MCP_FILE"] = str(notes.stdio())
    fresh_product.start_api()
    worker = fresh_product.start_worker()
    calls = (ToolCall(name="notes__count_once", arguments={}, id="count"),)
    model.respond_with(Reply(tool_calls=calls), Reply(text="brief"), Reply(text="done"))
    notes.hang()

    with fresh_product.client() as client:
        posted = client.post_turn("Count", tools=["notes__count_once"])
        wait_until(
            lambda: notes.lines("calls"),
            timeout_s=WAIT_S,
            message="the call does not reach the server",
        )
        worker.die(Death.KILL)
        notes.write_file(command="false")
        fresh_product.start_worker("other")
        turn = client.get_turn(posted["id"], wait_s=60)

    assert turn["status"] == "completed"
    assert "outcome of this call is unknown" in results(model.calls[1].request)["count"]
    assert len(notes.lines("calls")) == 1
