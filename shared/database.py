"""Transactions on the store: Postgres through psycopg, or SQLite in WAL mode.

Repositories are plain functions of a `Connection`; this module runs them inside a transaction.
On Postgres they run over the async driver. On SQLite they run on the event loop itself, which
costs less than a hop to a thread: only `BEGIN IMMEDIATE` can meet a lock, and it is awaited.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine, Row, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DatabaseError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.sql.dml import ReturningUpdate

from shared.errors import UnavailableError
from shared.settings import Settings

T = TypeVar("T")
# A row whose columns are known by the names its query gave them.
AnyRow = Row[*tuple[Any, ...]]
# An UPDATE … RETURNING, built once and run with parameters.
AnyUpdate = ReturningUpdate[*tuple[Any, ...]]
Work = Callable[[Connection], T]

POOL_SIZE = 10
# Longest wait for SQLite's one writer, for a pooled connection, and for Postgres to answer a
# connection attempt.
LOCK_TIMEOUT_S = 30
CONNECT_TIMEOUT_S = 5
# SQLite offers no way to await a lock held by another process; its own handler polls as well.
LOCK_POLL_S = 0.003


class StorageError(UnavailableError):
    """The database cannot be reached or gave up; nothing of the transaction is certain."""

    code = "storage_unavailable"


class Database(Protocol):
    """The store, as every async part sees it."""

    async def write(self, work: Work[T]) -> T:
        """Run work in one transaction and commit it.

        A transaction once begun is finished even if the caller is cancelled meanwhile.
        Raises StorageError if the store cannot be reached.
        """

    async def read(self, work: Work[T]) -> T:
        """Run work that only reads. Raises StorageError if the store cannot be reached."""

    async def close(self) -> None:
        """Close all connections."""


def open_database(settings: Settings) -> Database:
    """Open the store that the settings name. Connects on first use."""
    if settings.sync_database_url.startswith("sqlite"):
        return SqliteDatabase(settings)
    return PostgresDatabase(settings)


def create_sync_engine(settings: Settings, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> Engine:
    """Return an engine for threads: heartbeat, migrations and tests.

    On SQLite every transaction is `BEGIN IMMEDIATE`; lock_timeout_s is how long it waits.
    """
    url = settings.sync_database_url
    if not url.startswith("sqlite"):
        return create_engine(url, pool_pre_ping=True, connect_args=_postgres_options())
    engine = _sqlite_engine(url, lock_timeout_s)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


@contextlib.contextmanager
def storage_errors() -> Generator[None]:
    """Turn the driver's connection errors into StorageError."""
    try:
        yield
    except OperationalError as error:
        raise StorageError(
            f"The database cannot be used now ({_reason(error)}): check TURNMILL_DATABASE_URL, the"
            " server and its disk",
        ) from error
    except PoolTimeoutError as error:
        raise StorageError("The database is busy: all connections are in use") from error
    except DBAPIError as error:
        # SQLite says so of a file that is none of its own.
        is_unreadable = type(error) is DatabaseError
        if not (error.connection_invalidated or is_unreadable):
            raise
        raise StorageError(
            f"The database went away or is none ({_reason(error)}): check TURNMILL_DATABASE_URL and"
            " TURNMILL_DATA_DIR",
        ) from error


class PostgresDatabase:
    """Postgres over psycopg's async driver and a bounded pool."""

    def __init__(self, settings: Settings) -> None:
        self._engine = create_async_engine(
            settings.sync_database_url,
            pool_size=POOL_SIZE,
            max_overflow=0,
            pool_timeout=LOCK_TIMEOUT_S,
            pool_pre_ping=False,
            connect_args=_postgres_options(),
        )
        self._reader = self._engine.execution_options(isolation_level="AUTOCOMMIT")

    async def write(self, work: Work[T]) -> T:
        """Run work in one transaction; see `Database`."""
        with storage_errors():
            return await _finish(self._run(self._engine, work))

    async def read(self, work: Work[T]) -> T:
        """Run reads without a transaction around them; see `Database`."""
        with storage_errors():
            return await _finish(self._run(self._reader, work))

    async def close(self) -> None:
        """Close the pool."""
        await self._engine.dispose()

    async def _run(self, engine: AsyncEngine, work: Work[T], *, tries: int = 2) -> T:
        """Run work over a pooled connection, and over a fresh one if that had died.

        Then nothing was committed; only a failed commit leaves that open, and is not repeated.
        """
        async with engine.connect() as connection:
            try:
                await connection.begin()
                result = await connection.run_sync(work)
            except DBAPIError as error:
                if tries == 1 or not error.connection_invalidated:
                    raise
            else:
                await connection.commit()
                return result
        return await self._run(engine, work, tries=tries - 1)


class SqliteDatabase:
    """SQLite in WAL mode: one writer connection, one reader connection, both on the loop."""

    def __init__(self, settings: Settings) -> None:
        self._engine = _sqlite_engine(settings.sync_database_url, LOCK_TIMEOUT_S)
        self._writer: Connection | None = None
        self._reader: Connection | None = None
        self._turnstile = asyncio.Lock()

    async def write(self, work: Work[T]) -> T:
        """Run work in one `BEGIN IMMEDIATE` transaction; see `Database`."""
        with storage_errors():
            async with self._turnstile, self._begun() as connection:
                result = work(connection)
                connection.commit()
                return result

    async def read(self, work: Work[T]) -> T:
        """Run reads in one plain transaction, which sees one state; see `Database`."""
        with storage_errors():
            if self._reader is None:
                self._reader = self._engine.connect()
            try:
                self._reader.exec_driver_sql("BEGIN")
                return work(self._reader)
            finally:
                self._reader.rollback()

    async def close(self) -> None:
        """Close both connections."""
        for connection in (self._writer, self._reader):
            if connection is not None:
                connection.close()
        self._engine.dispose()

    @contextlib.asynccontextmanager
    async def _begun(self) -> AsyncIterator[Connection]:
        if self._writer is None:
            self._writer = self._engine.connect()
            self._writer.exec_driver_sql("PRAGMA busy_timeout=0")
        await _begin_immediate(self._writer)
        try:
            yield self._writer
        finally:
            self._writer.rollback()


async def _begin_immediate(connection: Connection) -> None:
    deadline = asyncio.get_running_loop().time() + LOCK_TIMEOUT_S
    while True:
        try:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        except OperationalError as error:
            connection.rollback()
            is_late = asyncio.get_running_loop().time() > deadline
            if is_late or not _is_locked(error):
                raise
            await asyncio.sleep(LOCK_POLL_S)
        else:
            return


async def _finish(transaction: Coroutine[None, None, T]) -> T:
    task = asyncio.ensure_future(transaction)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _sqlite_engine(url: str, lock_timeout_s: float) -> Engine:
    engine = create_engine(
        url,
        connect_args={"timeout": lock_timeout_s, "check_same_thread": False},
        isolation_level="AUTOCOMMIT",
    )
    event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
    # SQLite's own knows only ASCII.
    connection.create_function("lower", 1, _lower, deterministic=True)


def _lower(text: str | None) -> str | None:
    return None if text is None else text.lower()


def _postgres_options() -> dict[str, object]:
    # A process that is paused in the middle of a transaction must not hold its rows for ever, nor
    # may those who wait for them use up the pool.
    limits = {"lock_timeout": 5_000, "idle_in_transaction_session_timeout": 10_000}
    return {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "application_name": "turnmill",
        "options": " ".join(f"-c {name}={milliseconds}" for name, milliseconds in limits.items()),
    }


def _is_locked(error: OperationalError) -> bool:
    cause = error.orig
    return isinstance(cause, sqlite3.OperationalError) and cause.sqlite_errorcode in (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
    )


def _reason(error: DBAPIError) -> str:
    return str(error.orig).strip().splitlines()[0] if error.orig else type(error).__name__
