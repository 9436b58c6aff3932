"""Finding tools that users add, by the import paths they give."""

from importlib import import_module

from shared.errors import ConfigurationError
from workers.tools.registry import ToolRegistry, builtin_tools
from workers.tools.tool import Tool


def discover_tools(import_paths: str) -> ToolRegistry:
    """Return the built-in tools and those that are named, in that order.

    import_paths: `module:name`, separated by commas; each names a `Tool`.
    Raises ConfigurationError if one cannot be found or is no tool, or two have one name.
    """
    paths = [path.strip() for path in import_paths.split(",") if path.strip()]
    builtin = builtin_tools()
    return ToolRegistry([*builtin, *(_find(path) for path in paths)])


def _find(path: str) -> Tool:
    module_name, _, name = path.partition(":")
    try:
        found = getattr(import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"TURNMILL_TOOLS: {path!r} cannot be imported ({error}): give module:name, and have the"
            " module on the worker's Python path",
        ) from error
    if not isinstance(found, Tool):
        raise ConfigurationError(
            f"TURNMILL_TOOLS: {path!r} is no tool: decorate it with @workers.tools.tool.tool()",
        )
    return found
