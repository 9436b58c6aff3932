"""Two transactions, interleaved on purpose: the second begins while the first is still open."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sqlalchemy import Connection, Engine, event, text

from tests.helpers.waiting import wait_until

T = TypeVar("T")
U = TypeVar("U")
TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Both(Generic[T, U]):
    """What the two transactions returned; an exception of the second is its result."""

    first: T
    second: U | Exception


def interleave(
    engine: Engine,
    first: Callable[[Connection], T],
    second: Callable[[Connection], U],
    *,
    after: int | None = None,
) -> Both[T, U]:
    """Run first, hold it open until second waits for it or is through, then commit first.

    after: number of first's statements that come before second begins; at most all of them,
        which is what None stands for.
    """
    outcome: list[U | Exception] = []
    held = threading.Event()

    def run_second() -> None:
        held.wait(TIMEOUT_S)
        try:
            with engine.begin() as connection:
                outcome.append(second(connection))
        except Exception as error:  # noqa: BLE001 - handed to the test as it is
            outcome.append(error)

    def hold() -> None:
        held.set()
        if engine.dialect.name == "postgresql":
            wait_until(
                lambda: bool(outcome) or _someone_waits(engine),
                timeout_s=TIMEOUT_S,
                message="the second transaction neither waits nor ends",
            )
        # SQLite has one writer: the second cannot even begin before the first commits.

    thread = threading.Thread(target=run_second)
    thread.start()
    try:
        with engine.begin() as connection:
            if after is not None:
                _call_after(connection, after, hold)
            result = first(connection)
            if not held.is_set():
                hold()
    finally:
        held.set()
        thread.join(TIMEOUT_S)
    return Both(result, outcome[0])


def _call_after(connection: Connection, statements: int, call: Callable[[], None]) -> None:
    left = statements

    def count_down(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            call()

    event.listen(connection, "after_cursor_execute", count_down)


def _someone_waits(engine: Engine) -> bool:
    # In a transaction of its own: one transaction always sees the same activity.
    query = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'",
    )
    with engine.begin() as connection:
        return bool(connection.execute(query).scalar_one())
