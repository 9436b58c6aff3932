"""Finding what users add, by import path or by entry point."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from inspect import iscoroutinefunction
from typing import TypeVar

from shared.errors import ConfigurationError
from shared.settings import Settings, split_names
from workers.tools.builtin import builtin_tools
from workers.tools.hooks import ToolHook
from workers.tools.registry import ToolRegistry
from workers.tools.tool import Tool

T = TypeVar("T")

TOOLS_GROUP = "turnmill.tools"
HOOKS_GROUP = "turnmill.tool_hooks"


def discover_tools(settings: Settings) -> ToolRegistry:
    """Return the built-in tools and those of the user, in that order, with the user's hooks.

    Raises ConfigurationError if one cannot be found or is none, or two tools have one name.
    """
    own = _find_all(
        "TURNMILL_TOOLS",
        settings.tools,
        TOOLS_GROUP,
        Tool,
        "no tool: decorate it with @workers.tools.tool.tool()",
    )
    return ToolRegistry([*builtin_tools(settings), *own], list(_find_hooks(settings)))


def _find_hooks(settings: Settings) -> Iterator[ToolHook]:
    for hook in _find_all(
        "TURNMILL_TOOL_HOOKS",
        settings.tool_hooks,
        HOOKS_GROUP,
        ToolHook,
        "no hook: give an object of a subclass of workers.tools.hooks.ToolHook",
    ):
        if not (iscoroutinefunction(hook.before) and iscoroutinefunction(hook.after)):
            raise ConfigurationError(
                f"TURNMILL_TOOL_HOOKS: before and after of {type(hook).__name__} must be async",
            )
        yield hook


def _find_all(
    variable: str,
    names: str,
    group: str,
    kind: type[T],
    otherwise: str,
) -> Iterator[T]:
    """Yield what a setting names, one by one or in lists.

    names: `module:name` or `@entry point`, separated by commas.
    otherwise: what is said of something that is not of this kind.
    """
    for name in split_names(names):
        found = _load(variable, name, group)
        for item in found if isinstance(found, Sequence) else (found,):
            if not isinstance(item, kind):
                raise ConfigurationError(f"{variable}: {name!r} is {otherwise}")
            yield item


def _load(variable: str, name: str, group: str) -> object:
    if name.startswith("@"):
        return _load_entry_point(variable, name, group)
    module_name, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"{variable}: {name!r} cannot be imported ({error}): give module:name, and have the"
            " module on the worker's Python path",
        ) from error


def _load_entry_point(variable: str, name: str, group: str) -> object:
    installed = entry_points(group=group)
    try:
        return installed[name.removeprefix("@")].load()
    except KeyError as error:
        known = ", ".join(sorted(f"@{item.name}" for item in installed)) or "none"
        raise ConfigurationError(
            f"{variable}: there is no entry point {name!r} in {group} ({known}): install the"
            " package that has it beside the worker",
        ) from error
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"{variable}: {name!r} cannot be imported ({error})") from error
