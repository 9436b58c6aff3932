"""Calling a built-in tool's function as it is run."""

from collections.abc import Awaitable, Callable
from typing import cast

from workers.tools.tool import Tool


async def call(tool: Tool, **arguments: object) -> str:
    """Return the result. Raises ToolError."""
    return await cast("Callable[..., Awaitable[str]]", tool.function)(**arguments)
