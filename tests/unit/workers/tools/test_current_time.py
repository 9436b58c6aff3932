from datetime import UTC, datetime, timedelta

import pytest

from shared.errors import ToolError
from tests.unit.workers.tools.calls import call
from workers.tools.current_time import current_time


@pytest.mark.parametrize(
    ("arguments", "offset"),
    [
        ({}, timedelta(0)),
        ({"timezone": "utc"}, timedelta(0)),
        ({"timezone": "Asia/Tokyo"}, timedelta(hours=9)),
        ({"timezone": "Asia/Kathmandu"}, timedelta(hours=5, minutes=45)),
    ],
)
async def test_time_in_a_zone(arguments: dict[str, str], offset: timedelta) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    told = datetime.fromisoformat(await call(current_time, **arguments))
    assert told.utcoffset() == offset
    assert before <= told <= datetime.now(UTC)


@pytest.mark.parametrize(
    "name", ["Mars", "", "../etc/passwd", "/etc", "America", "a\0b", "x" * 999]
)
async def test_unknown_zone(name: str) -> None:
    with pytest.raises(ToolError, match="There is no time zone"):
        await call(current_time, timezone=name)
