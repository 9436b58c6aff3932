"""One fresh database per test, made from a template that was migrated once."""

import shutil
import uuid
from pathlib import Path
from typing import Protocol

from shared import migrate
from shared.settings import Settings
from tests.helpers.servers import PostgresServer

TEMPLATE = "migrated"


class Databases(Protocol):
    """Makes databases with the product's schema and nothing in them."""

    def create(self) -> str:
        """Return the URL of a fresh database."""

    def drop(self, url: str) -> None:
        """Remove a database, even if connections to it are open."""


class PostgresDatabases:
    """Databases of one server, copied from a template database."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        server.execute(f'CREATE DATABASE "{TEMPLATE}"')
        _migrate(server.database_url(TEMPLATE))

    def create(self) -> str:
        """Copy the template; see `Databases`."""
        name = _fresh_name()
        self._server.execute(f'CREATE DATABASE "{name}" TEMPLATE "{TEMPLATE}"')
        return self._server.database_url(name)

    def drop(self, url: str) -> None:
        """Drop the database and cut off its clients; see `Databases`."""
        name = url.rpartition("/")[2]
        self._server.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


class SqliteDatabases:
    """Database files in one folder, copied from a template file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._template = folder / f"{TEMPLATE}.sqlite3"
        _migrate(f"sqlite:///{self._template}")
        # The last connection has moved the log into the file, so the file is all there is.
        if _side_file(self._template, "-wal").exists():
            raise RuntimeError("a connection to the template is still open")

    def create(self) -> str:
        """Copy the template; see `Databases`."""
        path = self._folder / f"{_fresh_name()}.sqlite3"
        shutil.copyfile(self._template, path)
        return f"sqlite:///{path}"

    def drop(self, url: str) -> None:
        """Remove the file and its log; see `Databases`."""
        path = Path(url.removeprefix("sqlite:///"))
        for suffix in ("", "-wal", "-shm"):
            _side_file(path, suffix).unlink(missing_ok=True)


def _migrate(url: str) -> None:
    migrate.upgrade(Settings.from_environment({"TURNMILL_DATABASE_URL": url}))


def _fresh_name() -> str:
    return f"test_{uuid.uuid4().hex}"


def _side_file(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
