"""A process that stands still in the middle of a transaction does not hold a turn for ever."""

import contextlib

import pytest
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from shared.admission import admit_turn
from shared.database import StorageError, create_sync_engine, open_database
from shared.repositories import turns
from shared.settings import Settings
from shared.tables import Turn
from shared.turn_state import IfBusy
from tests.helpers.posting import new_turn
from tests.helpers.waiting import wait_until_async


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_turn_locked_by_a_paused_transaction_can_be_claimed(settings: Settings) -> None:
    database = open_database(settings)
    turn = new_turn()
    await database.write(
        lambda connection: admit_turn(
            connection,
            turn,
            starts_conversation=True,
            if_busy=IfBusy.QUEUE,
        ),
    )
    engine = create_sync_engine(settings)
    paused = engine.connect()
    paused.execute(select(Turn.id).where(Turn.id == turn.id).with_for_update())

    async def is_claimed() -> bool:
        with contextlib.suppress(StorageError):
            claimed = await database.write(
                lambda connection: turns.claim_turn(
                    connection,
                    turn.id,
                    owner="other",
                    lease_s=60,
                    turn_timeout_s=600,
                ),
            )
            return claimed is not None
        return False

    await wait_until_async(is_claimed, timeout_s=30, message="the turn stays locked")
    with contextlib.suppress(DBAPIError):
        paused.close()
    engine.dispose()
    await database.close()
