"""Calling tools as a worker does, without one."""

from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from shared.database import Work
from shared.ids import ConversationId, ToolCallId, TurnId
from workers.tools.tool import Tool, ToolContext

T = TypeVar("T")


async def _read(work: Work[T]) -> T:  # noqa: ARG001 - as `Read` has it
    raise AssertionError("there is no database")


CONTEXT = ToolContext(
    tool_call_id=ToolCallId("tool_1"),
    turn_id=TurnId("turn_1"),
    conversation_id=ConversationId("conv_1"),
    read=_read,
)


async def call(tool: Tool, **arguments: object) -> str:
    """Return the result of a built-in tool's function. Raises ToolError."""
    return await cast("Callable[..., Awaitable[str]]", tool.function)(**arguments)
