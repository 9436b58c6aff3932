"""Hooks: what an operator lets run before and after every tool call, in order.

A hook may watch, rewrite or block. One that fails blocks: a check that could not be made was not
passed.
"""

import asyncio
import json
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import structlog
from pydantic_core import to_jsonable_python

from shared.errors import ToolError
from workers.tools.outcome import ToolOutcome
from workers.tools.tool import ToolContext

log = structlog.get_logger()

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class HookedCall:
    """A tool call as hooks see it."""

    name: str
    # As the model sent them, or an earlier hook rewrote them; what is left out is not filled in.
    arguments: Mapping[str, object]
    context: ToolContext


class ToolHook:
    """Watches, rewrites or blocks tool calls. Override what is needed.

    Both run in the worker's loop and must not block it.
    """

    async def before(self, call: HookedCall) -> Mapping[str, object] | None:  # noqa: ARG002
        """Return the arguments to use instead, or None to leave them.

        Raise ToolError to block the call: the model sees its sentence as the result.
        """
        return None

    async def after(self, call: HookedCall, outcome: ToolOutcome) -> str | None:  # noqa: ARG002
        """Return the result to use instead, or None to leave it.

        Raise ToolError to withhold the result: the model sees its sentence instead.
        """
        return None


async def run_before(hooks: Sequence[ToolHook], call: HookedCall, timeout_s: float) -> HookedCall:
    """Return the call as the hooks leave it. Raises ToolError if one blocks it.

    timeout_s: time each hook may take.
    """
    for hook in hooks:
        arguments = await _ask(hook, call, hook.before(call), timeout_s)
        if arguments is not None:
            call = replace(call, arguments=arguments)
    return call


async def run_after(
    hooks: Sequence[ToolHook],
    call: HookedCall,
    outcome: ToolOutcome,
    timeout_s: float,
) -> ToolOutcome:
    """Return the outcome as the hooks leave it. Raises ToolError if one withholds it."""
    for hook in hooks:
        content = await _ask(hook, call, hook.after(call, outcome), timeout_s)
        if content is not None:
            outcome = replace(outcome, content=content)
    return outcome


def encode_arguments(call: HookedCall) -> str:
    """Return the arguments as JSON. Raises ToolError for what hooks made of them."""
    try:
        return json.dumps(call.arguments, default=to_jsonable_python)
    except (TypeError, ValueError) as error:
        log.warning("tool_hook_failed", tool=call.name, error=type(error).__name__)
        raise ToolError(f"{call.name} was blocked: a check failed") from error


async def _ask(hook: ToolHook, call: HookedCall, answer: Awaitable[T], timeout_s: float) -> T:
    try:
        async with asyncio.timeout(timeout_s):
            return await answer
    except ToolError:
        raise
    # A hook is foreign code, and its failure is no leave.
    except (Exception, SystemExit) as error:
        log.warning(
            "tool_hook_failed",
            hook=type(hook).__name__,
            tool=call.name,
            tool_call_id=call.context.tool_call_id,
            error=type(error).__name__,
        )
        raise ToolError(f"{call.name} was blocked: a check failed") from error
