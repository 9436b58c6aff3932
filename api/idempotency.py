"""Telling repeated requests from different ones, and trying again when two race."""

import hashlib

import orjson
from pydantic import BaseModel
from sqlalchemy.exc import IntegrityError

from shared.database import Database, T, Work


def hash_request(body: BaseModel) -> str:
    """Return a digest that two requests share if they ask for the same."""
    content = orjson.dumps(body.model_dump(), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(content).hexdigest()


async def write_once(database: Database, work: Work[T]) -> T:
    """Run work that may lose a race for a unique key: a second try sees the winner.

    Raises StorageError.
    """
    try:
        return await database.write(work)
    except IntegrityError:
        return await database.write(work)
