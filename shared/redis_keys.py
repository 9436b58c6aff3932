"""Every Redis key and channel, with its type and lifetime.

The turn's id stands in braces so that all keys of a turn share a hash slot.
"""

from shared.ids import TurnId

# Before every key of the broker's queues.
BROKER_PREFIX = "turnmill:"

LIMITER_PARTS = (
    "held",
    "waiting",
    "about",
    "shares",
    "kept",
    "virtual",
    "window",
    "gate",
    "processes",
)


def event_stream(turn_id: TurnId) -> str:
    """Return the stream of the turn's events. Lives 24 h after the last event, less at the end."""
    return f"turnmill:events:{{{turn_id}}}"


def event_meta(turn_id: TurnId) -> str:
    """Return the hash `{run_id, epoch, state}` of the turn's stream. Lives as long as it."""
    return f"turnmill:events:{{{turn_id}}}:meta"


def event_channel(turn_id: TurnId) -> str:
    """Return the channel that carries each event as it is appended."""
    return f"turnmill:live:{{{turn_id}}}"


def limiter_keys(model: str) -> tuple[str, ...]:
    """Return the keys of one model's limits, in the order of `limiter.lua`. Live an hour unused.

    model: a digest of its name and address.
    """
    return tuple(f"turnmill:limit:{{{model}}}:{part}" for part in LIMITER_PARTS)


def limiter_channel(model: str) -> str:
    """Return the channel that carries the names of processes whose turn it is to call a model."""
    return f"turnmill:limit:{{{model}}}:turn"


def control_channel(turn_id: TurnId) -> str:
    """Return the channel that carries injected messages and cancels to the turn's worker."""
    return f"turnmill:control:{{{turn_id}}}"
