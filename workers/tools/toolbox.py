"""All tools of a worker process: those found at its start, and those of its MCP servers."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Protocol

import structlog

from shared.errors import ConfigurationError
from shared.settings import Settings
from workers.tools.discovery import discover_tools
from workers.tools.mcp_file import read_mcp_file
from workers.tools.registry import ToolRegistry
from workers.tools.tool import Tool

log = structlog.get_logger()


class ToolServer(Protocol):
    """A server whose tools come and go."""

    name: str
    # Set once it was tried to connect to it.
    is_tried: asyncio.Event

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Its tools as it told last; a new tuple whenever that changes."""

    async def run(self) -> None:
        """Stay connected until cancelled."""


class Toolbox:
    """What the turns of a worker process may use."""

    def __init__(self, registry: ToolRegistry, servers: Sequence[ToolServer] = ()) -> None:
        self.servers = tuple(servers)
        self._found = registry
        self._current = registry
        self._seen: tuple[tuple[Tool, ...], ...] = ()

    @property
    def registry(self) -> ToolRegistry:
        """The tools there are now: the found ones, then each server's, in a fixed order."""
        seen = tuple(server.tools for server in self.servers)
        if seen != self._seen:
            self._current = ToolRegistry(
                [*self._found, *self._serve()],
                self._found.hooks,
                absent=[f"{server.name}__" for server in self.servers if not server.tools],
            )
            self._seen = seen
        return self._current

    async def wait_tried(self) -> None:
        """Wait until every server has answered or failed to."""
        for server in self.servers:
            await server.is_tried.wait()

    def _serve(self) -> Iterator[Tool]:
        taken = set(self._found.names)
        for server in self.servers:
            for tool in server.tools:
                if tool.name in taken:
                    log.warning("mcp_tool_left_out", server=server.name, tool=tool.name)
                    continue
                taken.add(tool.name)
                yield tool


def open_toolbox(settings: Settings, environment: Mapping[str, str]) -> Toolbox:
    """Find all tools. Nothing is connected yet: `ToolServer.run` does that.

    environment: what the file of MCP servers may refer to.
    Raises ConfigurationError if a tool, a hook or the file is wrong.
    """
    registry = discover_tools(settings)
    if settings.mcp_file is None:
        return Toolbox(registry)
    configs = read_mcp_file(settings.mcp_file, environment)
    try:
        # By name, and only now: the SDK takes 27 MB and a third of a second of every worker.
        module = import_module("workers.tools.mcp_server")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"TURNMILL_MCP_FILE needs a package that is not installed ({error.name}):"
            " pip install 'turnmill[mcp]'",
        ) from error
    return Toolbox(
        registry,
        [
            module.McpServer(name, config, connect_timeout_s=settings.mcp_connect_timeout_s)
            for name, config in configs.items()
        ],
    )
