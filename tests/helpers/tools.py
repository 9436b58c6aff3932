"""Tools that tests give the worker by TURNMILL_TOOLS. They note each start and wait for a file."""

import asyncio
from pathlib import Path

from workers.tools.tool import ToolContext, tool

POLL_S = 0.02


@tool(is_repeatable=False)
async def hold_once(gate: str, context: ToolContext) -> str:
    """Wait until a file exists. Not safe to repeat.

    gate: path of the file
    """
    return await _hold(Path(gate), context)


@tool(is_repeatable=True)
async def hold_repeatable(gate: str, context: ToolContext) -> str:
    """Wait until a file exists. Safe to repeat.

    gate: path of the file
    """
    return await _hold(Path(gate), context)


async def _hold(gate: Path, context: ToolContext) -> str:
    with started_file(gate).open("a", encoding="utf-8") as file:
        file.write(f"{context.tool_call_id}\n")
    # A file is what a test in another process can make.
    while not gate.exists():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(POLL_S)
    return "the gate is open"


def started_file(gate: Path) -> Path:
    """Return the file with one line per start: the tool call's id."""
    return gate.with_suffix(".started")


def read_starts(gate: Path) -> list[str]:
    """Return the ids of the tool calls that were started, in order."""
    path = started_file(gate)
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
