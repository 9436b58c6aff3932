"""Fixtures for all tests. Servers start when a test first asks for one and live for the session.

Under pytest-xdist each worker process has servers of its own.
"""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from shared.settings import Settings
from tests.helpers.client import TurnmillClient
from tests.helpers.databases import Databases, PostgresDatabases, SqliteDatabases
from tests.helpers.model_server import ScriptedModel
from tests.helpers.product import Death, Product
from tests.helpers.servers import PostgresServer, RedisServer

BACKENDS = ("sqlite", "postgres")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the product's processes wrote when a test that used them fails."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for product in item.funcargs.values():
            if isinstance(product, Product):
                report.sections += [
                    (f"log of {name}", text) for name, text in product.logs().items()
                ]
    return report


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


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    """Give a scripted model of the test's own. No request may have been refused by its rules."""
    with ScriptedModel() as server:
        yield server
        assert not server.refusals


@pytest.fixture(scope="session")
def shared_model() -> Iterator[ScriptedModel]:
    """Give the scripted model of the shared product: it answers every request with a text."""
    with ScriptedModel() as server:
        yield server
        assert not server.refusals


@pytest.fixture(scope="session", params=BACKENDS)
def product(
    request: pytest.FixtureRequest,
    shared_model: ScriptedModel,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Product]:
    """Give a running API and one worker that many tests share, on each backend in turn.

    A test must end its turns and may not let a process die. Restricted to one backend as
    `database_url` is.
    """
    databases: Databases = request.getfixturevalue(f"{request.param}_databases")
    url = databases.create()
    with RedisServer() as redis:
        product = Product(
            tmp_path_factory.mktemp("product"),
            database_url=url,
            redis_url=redis.url,
            model_base_url=shared_model.base_url,
        )
        try:
            product.start_api()
            product.start_worker()
            yield product
        finally:
            product.stop_all()
    databases.drop(url)


@pytest.fixture(params=BACKENDS)
def fresh_product(
    request: pytest.FixtureRequest,
    model: ScriptedModel,
    own_redis: RedisServer,
    tmp_path: Path,
) -> Iterator[Product]:
    """Give a product of the test's own, nothing of which runs yet, on each backend in turn.

    Its servers are `own_redis` and, on Postgres, `own_postgres`: the test may kill them too.
    """
    if request.param == "postgres":
        databases: Databases = PostgresDatabases(request.getfixturevalue("own_postgres"))
    else:
        databases = request.getfixturevalue("sqlite_databases")
    url = databases.create()
    product = Product(
        tmp_path,
        database_url=url,
        redis_url=own_redis.url,
        model_base_url=model.base_url,
    )
    yield product
    product.stop_all(Death.KILL)
    if request.param == "sqlite":
        databases.drop(url)


@pytest.fixture
def client(product: Product) -> Iterator[TurnmillClient]:
    """Give a client of the shared product."""
    with product.client() as client:
        yield client
