"""What answers here, whether the process lives, and whether what it needs answers."""

import asyncio
from collections.abc import Awaitable
from importlib.metadata import version

from fastapi import APIRouter
from redis.exceptions import RedisError
from sqlalchemy import Connection, text

from api.dependencies import Parts, PartsOf
from shared.errors import UnavailableError

READY_S = 2.0
OK = "ok"

router = APIRouter(tags=["health"])


@router.get("/", include_in_schema=False)
async def get_root() -> dict[str, str]:
    """Tell who came here by hand what this is, and where to go on."""
    return {
        "name": "Turnmill",
        "version": version("turnmill"),
        "docs": "/docs",
        "turns": "POST /v1/turns",
        "ready": "/readyz",
    }


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz")
async def get_health() -> dict[str, str]:
    """Answer as long as the process serves requests."""
    return {"status": OK}


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses={503: {"description": "A part does not answer"}})
async def get_readiness(parts: PartsOf) -> dict[str, str]:
    """Answer 200 if the database and Redis do."""
    database, redis = await asyncio.gather(
        _answers(parts.database.read(_select_one)),
        _answers(_ping(parts)),
    )
    silent = [name for name, is_there in (("database", database), ("Redis", redis)) if not is_there]
    if silent:
        verb = "does" if len(silent) == 1 else "do"
        raise UnavailableError(
            f"{' and '.join(silent)} {verb} not answer: check the servers and their URLs",
        )
    return {"database": OK, "redis": OK}


async def _answers(question: Awaitable[object]) -> bool:
    try:
        async with asyncio.timeout(READY_S):
            await question
    except (TimeoutError, OSError, RedisError, UnavailableError):
        return False
    return True


async def _ping(parts: Parts) -> None:
    await parts.redis.ping()


def _select_one(connection: Connection) -> None:
    connection.execute(text("SELECT 1"))
