"""Fixtures for all tests. Servers start when a test first asks for one and live for the session.

Under pytest-xdist each worker process has servers of its own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.settings import Settings
from tests.helpers.databases import Databases, PostgresDatabases, SqliteDatabases
from tests.helpers.servers import PostgresServer, RedisServer

BACKENDS = ("sqlite", "postgres")


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """Give the session's Redis. A test that kills one takes `own_redis`."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Give the session's Postgres. A test that kills one takes `own_postgres`."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_databases(postgres_server: PostgresServer) -> Databases:
    """Give the maker of databases on the session's Postgres."""
    return PostgresDatabases(postgres_server)


@pytest.fixture(scope="session")
def sqlite_databases(tmp_path_factory: pytest.TempPathFactory) -> Databases:
    """Give the maker of SQLite files."""
    return SqliteDatabases(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """Give the URL of an empty Redis."""
    redis_server.flush()
    return redis_server.url


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """Give a Redis that the test may kill. It loses everything then."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """Give a Postgres that the test may kill."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(params=BACKENDS)
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Give the URL of a fresh, migrated database, on each backend in turn.

    A test for one backend only says so:
    `@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)`.
    """
    databases: Databases = request.getfixturevalue(f"{request.param}_databases")
    url = databases.create()
    yield url
    databases.drop(url)


@pytest.fixture
def settings(database_url: str, redis_url: str, tmp_path: Path) -> Settings:
    """Give settings for parts that run inside the test's own process."""
    return Settings.from_environment(
        {
            "TURNMILL_DATA_DIR": str(tmp_path),
            "TURNMILL_DATABASE_URL": database_url,
            "TURNMILL_REDIS_URL": redis_url,
        },
    )
