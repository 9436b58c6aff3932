"""Running a tool call. Whatever goes wrong in it is an observation for the model, never a crash."""

import asyncio
import inspect
import json
import time
import traceback
from collections.abc import Callable

import structlog
from pydantic_core import to_jsonable_python

from shared.errors import ToolError
from shared.text import storable
from workers.context.cuts import cut_end
from workers.tools.hooks import HookedCall, encode_arguments, run_after, run_before
from workers.tools.outcome import ToolOutcome
from workers.tools.registry import ToolRegistry
from workers.tools.tool import Route, Tool, ToolContext, parse_object

log = structlog.get_logger()

# A tool message without content is refused by some providers.
EMPTY_RESULT = "(no output)"
# Most characters of a wrong name that are repeated to the model.
NAME_CHARS = 100


async def run_tool(
    registry: ToolRegistry,
    name: str,
    arguments_json: str,
    context: ToolContext,
    timeout_s: float,
) -> ToolOutcome:
    """Run one tool call, with the registry's hooks before and after it.

    name, arguments_json: as the model sent them; both may be wrong.
    timeout_s: time the call may take unless the tool says otherwise, and each hook.
    Only cancellation and a worker's end pass through.
    """
    started_at = time.monotonic()
    try:
        outcome = await _run(registry, name, storable(arguments_json), context, timeout_s)
        content, is_error = outcome.content, outcome.is_error
    except ToolError as error:
        content, is_error = error.message, True
    return ToolOutcome(
        content=cut_end(storable(content)),
        is_error=is_error,
        elapsed_s=time.monotonic() - started_at,
    )


def route_call(
    registry: ToolRegistry,
    name: str,
    arguments_json: str,
    timeout_s: float,
) -> Route:
    """Say how a call is to be run. One that cannot be run is told so at once: nobody is asked.

    timeout_s: time the call may take unless the tool says otherwise.
    """
    tool = registry.find(name)
    if tool is None or not (tool.queue or tool.needs_approval):
        return Route()
    try:
        tool.parse_arguments(storable(arguments_json))
    except ToolError:
        return Route()
    return Route(
        queue=tool.queue,
        needs_approval=tool.needs_approval,
        is_repeatable=tool.is_repeatable,
        timeout_s=timeout_s if tool.timeout_s is None else tool.timeout_s,
    )


async def _run(
    registry: ToolRegistry,
    name: str,
    arguments_json: str,
    context: ToolContext,
    timeout_s: float,
) -> ToolOutcome:
    """Return what came of the call. Raises ToolError if it was not made or is withheld."""
    tool = _find(registry, name)
    # Before any hook: they see arguments that the tool would take.
    arguments = tool.parse_arguments(arguments_json)
    if not registry.hooks:
        return await _run_tool(tool, arguments, context, timeout_s)
    given = HookedCall(name=name, arguments=parse_object(arguments_json), context=context)
    call = await run_before(registry.hooks, given, timeout_s)
    # What the hooks saw last is what runs.
    arguments = tool.parse_arguments(encode_arguments(call))
    outcome = await _run_tool(tool, arguments, context, timeout_s)
    return await run_after(registry.hooks, call, outcome, timeout_s)


async def _run_tool(
    tool: Tool,
    arguments: dict[str, object],
    context: ToolContext,
    timeout_s: float,
) -> ToolOutcome:
    started_at = time.monotonic()
    if tool.context_parameter is not None:
        arguments[tool.context_parameter] = context
    try:
        content, is_error = _encode(await _call(tool, arguments, timeout_s)) or EMPTY_RESULT, False
    except ToolError as error:
        content, is_error = error.message, True
    # A tool is foreign code: its failure, even a call of sys.exit, is the model's to see.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        log.warning(
            "tool_failed",
            tool=tool.name,
            tool_call_id=context.tool_call_id,
            error=type(error).__name__,
        )
        content, is_error = f"{tool.name} failed: {_describe(error)}", True
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
