"""Control messages: what the API tells the worker that runs a turn.

They only save time. The database holds the injected message and the cancel request, and every
write of the worker reads both.
"""

from dataclasses import dataclass
from typing import Literal

import orjson
import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared import redis_keys
from shared.ids import TurnId

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlMessage:
    """One message on a turn's control channel."""

    type: Literal["inject", "cancel"]
    # Of an injected message.
    injection_id: str | None = None
    content: str | None = None


async def send_control(redis: Redis, turn_id: TurnId, message: ControlMessage) -> None:
    """Publish the message, or drop it if Redis is away."""
    try:
        await redis.publish(redis_keys.control_channel(turn_id), orjson.dumps(message))
    except (RedisError, OSError) as error:
        log.warning("control_dropped", turn_id=turn_id, error=type(error).__name__)


def parse_control(payload: bytes) -> ControlMessage:
    """Read a message as its channel carries it; fields of a newer version are ignored."""
    data = orjson.loads(payload)
    return ControlMessage(
        type=data["type"],
        injection_id=data.get("injection_id"),
        content=data.get("content"),
    )
