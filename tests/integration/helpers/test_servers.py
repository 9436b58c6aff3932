"""The servers that tests start: they die and come back where they were."""

from collections.abc import Iterator

import psutil
import psycopg
import pytest
import redis

from tests.helpers.databases import Databases
from tests.helpers.servers import PostgresServer, RedisServer


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.mark.parametrize("persistent", [False, True], ids=["volatile", "persistent"])
def test_redis_comes_back_on_its_port(*, persistent: bool) -> None:
    with RedisServer(persistent=persistent) as server:
        url = server.url
        with server.client() as client:
            client.set("key", "value")

        server.kill()
        with pytest.raises(redis.ConnectionError), server.client() as client:
            client.ping()
        server.restart()

        assert server.url == url
        with server.client() as client:
            assert client.exists("key") == int(persistent)


def test_flushed_redis_is_empty_and_the_same() -> None:
    with RedisServer() as server, server.client() as client:
        client.set("key", "value")
        before = client.info("server")["run_id"]

        server.flush()

        assert client.dbsize() == 0
        assert client.info("server")["run_id"] == before


def test_paused_redis_answers_nothing_until_it_is_resumed() -> None:
    with RedisServer() as server:
        server.pause()
        impatient = redis.Redis.from_url(server.url, socket_timeout=0.1)
        with pytest.raises(redis.TimeoutError):
            impatient.ping()
        impatient.close()

        server.resume()

        with server.client() as client:
            assert client.ping()


def test_postgres_keeps_what_was_committed_when_killed(postgres: PostgresServer) -> None:
    postgres.execute("CREATE TABLE kept (value int)")
    postgres.execute("INSERT INTO kept VALUES (1)")

    postgres.kill()
    with pytest.raises(psycopg.OperationalError):
        postgres.execute("SELECT 1")
    postgres.restart()

    with psycopg.connect(postgres.url) as connection:
        assert connection.execute("SELECT value FROM kept").fetchall() == [(1,)]


def test_postgres_cuts_off_its_clients_when_it_stops(postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        postgres.restart()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_nothing_is_left_of_a_closed_server() -> None:
    server = RedisServer()
    server.start()
    process = psutil.Process(server._process.pid if server._process else 0)

    server.close()

    assert not process.is_running()
    assert not server.folder.exists()


def test_databases_do_not_see_each_other(
    postgres_databases: Databases,
    sqlite_databases: Databases,
) -> None:
    for databases in (postgres_databases, sqlite_databases):
        urls = [databases.create(), databases.create()]
        assert urls[0] != urls[1]
        for url in urls:
            databases.drop(url)
            databases.drop(url)
