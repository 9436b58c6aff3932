"""One MCP server: kept connected, its tools offered as `server__tool`.

A server that is away costs a turn one sentence, never more. A call whose connection was lost is
made again only where that is safe; else the model is told that nobody knows.
"""

import asyncio
import contextlib
import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Any

import anyio
import httpx2
import structlog
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    AudioContent,
    CallToolResult,
    ContentBlock,
    ImageContent,
    Implementation,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from mcp_types import Tool as McpTool
from pydantic import BaseModel, ConfigDict
from pydantic_core import to_json

from shared.errors import ToolError
from shared.outage import Outage
from workers.tools.mcp_file import HttpConfig, McpConfig, StdioConfig
from workers.tools.tool import NAME, Tool

log = structlog.get_logger()

# A pair of the SDK's streams, whose type it keeps to itself.
Streams = Any

# Between tries to connect: doubled from the first to the last.
FIRST_PAUSE_S = 0.5
LAST_PAUSE_S = 15.0
# Between looks at the tools, which also show that the server is still there.
LOOK_S = 30.0
# How long a call waits for a server that is away.
AWAY_S = 5.0
# Pages of one list of tools.
MAX_PAGES = 100
# Errors after which nobody knows whether the call has run. Any other is a refusal.
UNCERTAIN = frozenset({CONNECTION_CLOSED, INTERNAL_ERROR})


class _AnyArguments(BaseModel):
    """Arguments that the server checks, by its own schema."""

    model_config = ConfigDict(extra="allow")


class _ConnectionLostError(Exception):
    """The connection was lost during a call."""

    def __init__(self, *, may_have_run: bool) -> None:
        super().__init__(may_have_run)
        self.may_have_run = may_have_run


class McpServer:
    """One server, as one worker process sees it."""

    def __init__(self, name: str, config: McpConfig, *, connect_timeout_s: float) -> None:
        self.name = name
        self.is_tried = asyncio.Event()
        self._config = config
        self._connect_timeout_s = connect_timeout_s
        self._outage = Outage(f"MCP server {name}")
        self._pause_s = FIRST_PAUSE_S
        self._listed: list[McpTool] = []
        self._tools: tuple[Tool, ...] = ()
        # None while the server is away.
        self._client: Client | None = None
        self._is_up = asyncio.Event()
        self._is_lost = asyncio.Event()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Its tools as it told last, by name. They stay while it is away."""
        return self._tools

    async def run(self) -> None:
        """Stay connected until cancelled."""
        while True:
            try:
                await self._stay_connected()
            # The SDK raises whatever it met, in groups; none of it may end the worker.
            except Exception as error:  # noqa: BLE001
                _raise_if_cancelled(error)
                self._outage.begin(_first(error))
            self._lose()
            self.is_tried.set()
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)

    async def _stay_connected(self) -> None:
        """Connect, and raise when the connection is lost."""
        self._is_lost.clear()
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(self._connect_timeout_s):
                client = await stack.enter_async_context(self._connect())
                await self._look(client)
            self._client = client
            self._is_up.set()
            self._outage.end()
            self.is_tried.set()
            self._pause_s = FIRST_PAUSE_S
            while not await self._is_lost_within(LOOK_S):
                async with asyncio.timeout(self._connect_timeout_s):
                    await self._look(client)
            raise ConnectionResetError

    def _connect(self) -> Client:
        return Client(
            self._watch(self._open()),
            client_info=Implementation(name="turnmill", version=version("turnmill")),
            cache=None,
        )

    def _open(self) -> Transport:
        match self._config:
            case StdioConfig(command=command, args=args, env=env, cwd=cwd):
                server = StdioServerParameters(command=command, args=args, env=env, cwd=cwd)
                # The worker's own; Celery puts something without a file in its place.
                return stdio_client(server, errlog=sys.__stderr__ or sys.stderr)
            case HttpConfig() as config:
                return _open_http(config, self._connect_timeout_s)

    @asynccontextmanager
    async def _watch(self, transport: Transport) -> AsyncIterator[Streams]:
        """Notice the end of what the server sends: nobody reads it out while no call is open."""
        async with transport as (read, write), anyio.create_task_group() as group:
            send, receive = anyio.create_memory_object_stream[SessionMessage | Exception]()

            async def pass_on() -> None:
                async with send:
                    # The client closes its end first.
                    with contextlib.suppress(anyio.BrokenResourceError):
                        async for message in read:
                            await send.send(message)
                self._is_lost.set()

            group.start_soon(pass_on)
            yield receive, write
            group.cancel_scope.cancel()

    async def _is_lost_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_lost.wait(), seconds)
        return self._is_lost.is_set()

    def _lose(self) -> None:
        self._client = None
        self._is_up.clear()
        self._is_lost.set()

    async def _look(self, client: Client) -> None:
        """Ask for the tools; they are made anew only if they have changed."""
        listed: list[McpTool] = []
        cursor = None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            listed += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        # A server may list them in any order; the prompt's prefix must stay the same.
        listed.sort(key=lambda tool: tool.name)
        if listed != self._listed:
            self._listed = listed
            self._tools = tuple(filter(None, map(self._make_tool, listed)))
            log.info("mcp_tools", server=self.name, tools=len(self._tools))

    def _make_tool(self, listed: McpTool) -> Tool | None:
        name = f"{self.name}__{re.sub(r'[^a-zA-Z0-9_-]', '_', listed.name)}"
        if not NAME.fullmatch(name):
            log.warning("mcp_tool_left_out", server=self.name, tool=name)
            return None
        hints = listed.annotations
        is_repeatable = bool(hints and (hints.read_only_hint or hints.idempotent_hint))

        async def call(**arguments: object) -> str:
            return await self._call(listed.name, arguments, is_repeatable=is_repeatable)

        return Tool(
            name=name,
            description=listed.description or listed.title or listed.name,
            parameters=listed.input_schema,
            function=call,
            arguments=_AnyArguments,
            is_repeatable=is_repeatable,
            timeout_s=self._config.timeout_s,
            needs_approval=self._config.needs_approval,
        )

    async def _call(
        self,
        name: str,
        arguments: dict[str, object],
        *,
        is_repeatable: bool,
    ) -> str:
        try:
            return await self._try(name, arguments)
        except _ConnectionLostError as lost:
            if lost.may_have_run and not is_repeatable:
                raise self._unknown() from lost
        try:
            return await self._try(name, arguments)
        except _ConnectionLostError as lost:
            raise self._unknown() from lost

    async def _try(self, name: str, arguments: dict[str, object]) -> str:
        client = await self._wait_for_client()
        try:
            result = await client.call_tool(name, arguments)
        except MCPError as error:
            # A server that was restarted does not know the session; each says so in its own way.
            if error.code != CONNECTION_CLOSED and await _answers(client):
                raise ToolError(error.message) from error
            if self._client is client:
                self._lose()
            raise _ConnectionLostError(may_have_run=error.code in UNCERTAIN) from error
        if result.is_error:
            raise ToolError(_read(result))
        return _read(result)

    async def _wait_for_client(self) -> Client:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_up.wait(), AWAY_S)
        if self._client is None:
            raise ToolError(f"The MCP server {self.name} cannot be reached now: try again later")
        return self._client

    def _unknown(self) -> ToolError:
        return ToolError(
            f"The connection to the MCP server {self.name} was lost during this call, and its"
            " outcome is unknown. Find out what happened before you call it again.",
        )


@asynccontextmanager
async def _open_http(config: HttpConfig, connect_timeout_s: float) -> AsyncIterator[Streams]:
    # How long an answer may take is for the call's own time limit to say.
    timeout = httpx2.Timeout(None, connect=connect_timeout_s)
    limits = httpx2.Limits(max_connections=None)
    async with (
        httpx2.AsyncClient(headers=config.headers, timeout=timeout, limits=limits) as http,
        streamable_http_client(str(config.url), http_client=http) as streams,
    ):
        yield streams


async def _answers(client: Client) -> bool:
    try:
        await client.list_tools()
    except MCPError:
        return False
    return True


def _read(result: CallToolResult) -> str:
    """Return what a model can read of a result."""
    if not result.content and result.structured_content is not None:
        return to_json(result.structured_content).decode()
    return "\n".join(map(_read_block, result.content))


def _read_block(block: ContentBlock) -> str:
    match block:
        case TextContent(text=text):
            return text
        case ImageContent(mime_type=kind) | AudioContent(mime_type=kind):
            return f"[{kind} that cannot be shown]"
        case ResourceLink(name=name, uri=uri):
            return f"[Resource {name}: {uri}]"
    if isinstance(block.resource, TextResourceContents):
        return block.resource.text
    return f"[{block.resource.mime_type or 'Binary'} resource that cannot be shown]"


def _raise_if_cancelled(error: Exception) -> None:
    """Go on with a cancellation of ours that a group of errors has swallowed."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError from error


def _first(error: Exception) -> Exception:
    """Return the first single error of a group."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
