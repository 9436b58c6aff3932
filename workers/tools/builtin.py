"""The tools that come with the product."""

from shared.errors import ConfigurationError
from shared.settings import Settings, split_names
from workers.tools.addresses import AddressGate
from workers.tools.calculator import calculator
from workers.tools.current_time import current_time
from workers.tools.http_get import HttpGet
from workers.tools.json_query import JsonQuery
from workers.tools.text_search import text_search
from workers.tools.tool import Tool, tool

NONE = "none"
HTTP_TIMEOUT_S = 30


def builtin_tools(settings: Settings) -> list[Tool]:
    """Return the tools of the product that the settings name, in an order of their own.

    Raises ConfigurationError if one is unknown.
    """
    gate = AddressGate(settings.tool_http_networks)
    tools = (
        calculator,
        current_time,
        text_search,
        tool(is_repeatable=True, timeout_s=HTTP_TIMEOUT_S)(
            HttpGet(gate, max_bytes=settings.tool_http_max_bytes),
        ),
        tool(is_repeatable=True)(JsonQuery()),
    )
    wanted = [name for name in split_names(settings.builtin_tools) if name != NONE]
    known = [item.name for item in tools]
    unknown = sorted(set(wanted).difference(known))
    if unknown:
        raise ConfigurationError(
            f"TURNMILL_BUILTIN_TOOLS: there is no {', '.join(unknown)}; there are"
            f" {', '.join(known)}, or {NONE}",
        )
    return [item for item in tools if item.name in wanted]
