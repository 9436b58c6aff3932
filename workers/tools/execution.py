"""Running a tool call. Whatever goes wrong in it is an observation for the model, never a crash."""

import asyncio
import inspect
import json
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from pydantic_core import to_jsonable_python

from shared.errors import ToolError
from shared.text import storable
from workers.context.cuts import cut_end
from workers.tools.registry import ToolRegistry
from workers.tools.tool import Tool, ToolContext

log = structlog.get_logger()

# A tool message without content is refused by some providers.
EMPTY_RESULT = "(no output)"
# Most characters of a wrong name that are repeated to the model.
NAME_CHARS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    """What a tool call came to."""

    # The result, or a sentence that says what went wrong; storable, and cut with a mark.
    content: str
    is_error: bool
    elapsed_s: float


async def run_tool(
    registry: ToolRegistry,
    name: str,
    arguments_json: str,
    context: ToolContext,
    timeout_s: float,
) -> ToolOutcome:
    """Run one tool call.

    name, arguments_json: as the model sent them; both may be wrong.
    timeout_s: time the call may take unless the tool says otherwise.
    Only cancellation and a worker's end pass through.
    """
    started_at = time.monotonic()
    try:
        tool = _find(registry, name)
        arguments = tool.parse_arguments(storable(arguments_json))
        if tool.context_parameter is not None:
            arguments[tool.context_parameter] = context
        result = await _call(tool, arguments, timeout_s)
        content, is_error = _encode(result) or EMPTY_RESULT, False
    except ToolError as error:
        content, is_error = error.message, True
    # A tool is foreign code: its failure, even a call of sys.exit, is the model's to see.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        log.warning(
            "tool_failed", tool=name, tool_call_id=context.tool_call_id, error=type(error).__name__
        )
        content, is_error = f"{name} failed: {_describe(error)}", True
    return ToolOutcome(
        content=cut_end(storable(content)),
        is_error=is_error,
        elapsed_s=time.monotonic() - started_at,
    )


def _find(registry: ToolRegistry, name: str) -> Tool:
    tool = registry.find(name)
    if tool is None:
        known = ", ".join(registry.names) or "none"
        raise ToolError(f"There is no tool {name[:NAME_CHARS]!r}. Available tools: {known}")
    return tool


async def _call(tool: Tool, arguments: dict[str, object], timeout_s: float) -> object:
    limit_s = timeout_s if tool.timeout_s is None else tool.timeout_s
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            if inspect.iscoroutinefunction(tool.function):
                return await tool.function(**arguments)
            return await asyncio.to_thread(_call_in_thread, tool.function, arguments)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise ToolError(f"{tool.name} was stopped: it took longer than {limit_s:g} s") from error


def _call_in_thread(function: Callable[..., object], arguments: dict[str, object]) -> object:
    try:
        return function(**arguments)
    except StopIteration as error:
        # It cannot be passed to a future; the caller would wait for ever.
        raise RuntimeError("StopIteration was raised") from error


def _encode(result: object) -> str:
    if isinstance(result, str):
        return result
    return json.dumps(result, ensure_ascii=False, default=to_jsonable_python)


def _describe(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()
