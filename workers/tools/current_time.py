"""The tool that tells the time."""

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from shared.errors import ToolError
from workers.tools.tool import tool


@tool(is_repeatable=True)
async def current_time(timezone: str = "UTC") -> str:
    """Tell the current date and time in ISO 8601 format.

    timezone: an IANA time zone such as Europe/Berlin.
    """
    return datetime.now(_find_zone(timezone)).isoformat(timespec="seconds")


def _find_zone(name: str) -> tzinfo:
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    # An unknown zone is a KeyError; a path or a folder of zones one of the others.
    except (KeyError, ValueError, OSError) as error:
        raise ToolError(
            f"There is no time zone {name!r}. Use an IANA name such as Europe/Berlin or UTC",
        ) from error
