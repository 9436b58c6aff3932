"""An MCP server made with the SDK: `python mcp_server.py NOTES [PORT]`.

NOTES: a folder; each start leaves a line with the process id in `starts`, each call of a tool that
counts a line in `calls`. While `NOTES/hang` is there, those calls never end. PORT: speak streamable
HTTP there; without it, standard input and output.
"""

import asyncio
import os
import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.utilities.types import Image
from mcp_types import ToolAnnotations

NOTES = Path(sys.argv[1])
server = MCPServer("notes", log_level="WARNING")


def note(name: str) -> None:
    """Add a line to a file of notes."""
    with (NOTES / name).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")


async def count() -> str:
    """Note a call, and hang while told to."""
    note("calls")
    if (NOTES / "hang").exists():
        await asyncio.Event().wait()
    return f"called {len((NOTES / 'calls').read_text().splitlines())} times"


@server.tool()
async def add(left: int, right: int) -> str:
    """Add two numbers."""
    return str(left + right)


@server.tool(name="count.once")
async def count_once() -> str:
    """Count, and do not count again."""
    return await count()


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
async def count_again() -> str:
    """Count as often as you like."""
    return await count()


@server.tool()
async def fail() -> str:
    """Fail."""
    raise ToolError("on purpose")


@server.tool()
async def picture() -> list[str | Image]:
    """Give a text and an image."""
    return ["a dot", Image(data=b"\x89PNG", format="png")]


@server.tool()
async def secret() -> str:
    """Tell what of the environment is seen."""
    return f"{os.environ.get('GIVEN')} {os.environ.get('LLM_API_KEY')}"


@server.tool()
async def long() -> str:
    """Say a lot."""
    return "x" * 60_000


if __name__ == "__main__":
    note("starts")
    if len(sys.argv) > 2:
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run()
