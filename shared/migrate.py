"""Bringing the database's schema up to date."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from shared.database import create_sync_engine, storage_errors
from shared.errors import ConfigurationError
from shared.settings import Settings

MIGRATIONS = Path(__file__).parent / "migrations"
# Any number, the same for all: at most one migration runs on a Postgres database.
LOCK_KEY = 7_812_064


def upgrade(settings: Settings) -> None:
    """Create the schema or bring it up to date. Safe when several run it at once.

    Raises ConfigurationError if the data directory cannot be written, StorageError if the
    database cannot be reached.
    """
    if settings.database_url is None:
        _make_data_dir(settings.data_dir)
    engine = create_sync_engine(settings)
    try:
        with storage_errors(), engine.begin() as connection:
            _lock(engine, connection)
            command.upgrade(_config(connection), "head")
    finally:
        engine.dispose()


def check_file(settings: Settings) -> None:
    """Raise ConfigurationError if the database is an SQLite file that is not there.

    Connecting would make an empty one.
    """
    scheme, _, path = settings.sync_database_url.partition(":///")
    if scheme.startswith("sqlite") and not Path(path).exists():
        raise ConfigurationError(
            f"There is no database {path} yet: `turnmill up` or `turnmill migrate` makes it; check"
            " TURNMILL_DATABASE_URL and TURNMILL_DATA_DIR",
        )


def check_schema(connection: Connection) -> None:
    """Raise ConfigurationError unless the database has this version's schema."""
    found = MigrationContext.configure(connection).get_current_revision()
    wanted = ScriptDirectory(str(MIGRATIONS)).get_current_head()
    if found != wanted:
        state = "an older or newer schema" if found else "no schema yet"
        raise ConfigurationError(
            f"The database has {state}: run `turnmill migrate` (`turnmill up` does so itself), or"
            " check TURNMILL_DATABASE_URL and TURNMILL_DATA_DIR",
        )


def _make_data_dir(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"The data directory {path} cannot be made ({error.strerror}): choose another with"
            " TURNMILL_DATA_DIR",
        ) from error


def _lock(engine: Engine, connection: Connection) -> None:
    # SQLite transactions of this engine are BEGIN IMMEDIATE, which is a lock already.
    if engine.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config
