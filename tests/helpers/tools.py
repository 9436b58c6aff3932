"""Tools that tests give the worker by TURNMILL_TOOLS. They note each start and wait for a file."""

import asyncio
import os
import time
from pathlib import Path

from workers.tools.tool import Tool, ToolContext, tool

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


@tool(needs_approval=True)
def wipe(notes: str, what: str) -> str:
    """Wipe something. Somebody has to approve it.

    notes: path of the file that says what was wiped
    what: what to wipe
    """
    with Path(notes).open("a", encoding="utf-8") as file:
        file.write(f"{what}\n")
    return f"wiped {what}"


@tool(queue="tools", needs_approval=True)
def wipe_far(notes: str, what: str) -> str:
    """Wipe something far away. Somebody has to approve it.

    notes: path of the file that says what was wiped
    what: what to wipe
    """
    return f"{wipe.function(notes, what)} in process {os.getpid()}"


@tool(queue="tools")
def burn(gate: str, context: ToolContext) -> str:
    """Burn CPU until a file exists. Not safe to repeat.

    gate: path of the file
    """
    return _burn(Path(gate), context)


@tool(queue="tools", is_repeatable=True)
def burn_repeatable(gate: str, context: ToolContext) -> str:
    """Burn CPU until a file exists. Safe to repeat.

    gate: path of the file
    """
    return _burn(Path(gate), context)


@tool(queue="tools", timeout_s=1)
def burn_briefly(gate: str, context: ToolContext) -> str:
    """Burn CPU until a file exists, but for a second at most.

    gate: path of the file
    """
    return _burn(Path(gate), context)


def _burn(gate: Path, context: ToolContext) -> str:
    _note_start(gate, context)
    while not gate.exists():
        time.sleep(0)
    return f"burned in process {os.getpid()}"


def _note_start(gate: Path, context: ToolContext) -> None:
    with started_file(gate).open("a", encoding="utf-8") as file:
        file.write(f"{context.tool_call_id}\n")


async def _hold(gate: Path, context: ToolContext) -> str:
    _note_start(gate, context)
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


def _shelf(number: int) -> Tool:
    async def look(item: str) -> str:
        return f"{item} is on shelf {number}"

    look.__doc__ = f"Look for an item on shelf {number}.\n\nitem: name of the item"
    return tool(name=f"shelf_{number}", is_repeatable=True)(look)


# More than are offered as they are.
SHELVES = [_shelf(number) for number in range(1, 15)]
