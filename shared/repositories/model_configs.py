"""Models and their limits as an administrator set them."""

from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, update

from shared.clock import now
from shared.database import AnyRow
from shared.errors import InvalidInputError
from shared.tables import ModelConfig as Table
from shared.tables import TokenFactors


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One model; what is None comes from the environment."""

    name: str
    role: str | None = None
    base_url: str | None = None
    # Name of the workers' environment variable that holds the key.
    api_key_env: str | None = None
    context_size: int | None = None
    max_output_tokens: int | None = None
    # Whether it can call tools, and write JSON when told to by `response_format`.
    tool_call: bool | None = None
    json_mode: bool | None = None
    # Name of the model that is called while this one cannot be.
    fallback: str | None = None
    # Limits for all workers together.
    max_in_flight: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None


_COLUMNS = (
    Table.name,
    Table.role,
    Table.base_url,
    Table.api_key_env,
    Table.context_size,
    Table.max_output_tokens,
    Table.tool_call,
    Table.json_mode,
    Table.fallback,
    Table.max_in_flight,
    Table.requests_per_minute,
    Table.tokens_per_minute,
    Table.created_at,
    Table.updated_at,
)


def list_model_configs(connection: Connection) -> list[ModelConfig]:
    """Return all models, by name."""
    rows = connection.execute(select(*_COLUMNS).order_by(Table.name))
    return [_config(row) for row in rows]


def get_model_config(connection: Connection, name: str) -> ModelConfig | None:
    """Return the model, or None."""
    row = connection.execute(select(*_COLUMNS).where(Table.name == name)).one_or_none()
    return _config(row) if row else None


def put_model_config(connection: Connection, config: ModelConfig) -> bool:
    """Write the model, taking its role from any other; tell whether it is new.

    What its providers stated of its window or refused of requests is forgotten: the one who writes
    knows better. Raises InvalidInputError for one that is its own fallback.
    """
    if config.fallback == config.name:
        raise InvalidInputError("fallback must be another model than the one it stands for")
    values = asdict(config) | {"updated_at": now()}
    del values["name"], values["created_at"]
    if config.role is not None:
        others = update(Table).where(Table.role == config.role, Table.name != config.name)
        connection.execute(others.values(role=None))
    learned = update(TokenFactors).where(TokenFactors.model == config.name)
    connection.execute(learned.values(context_size=None, refused=[]))
    known = update(Table).where(Table.name == config.name).values(**values).returning(Table.name)
    if connection.execute(known).one_or_none() is not None:
        return False
    connection.execute(insert(Table).values(name=config.name, created_at=now(), **values))
    return True


def delete_model_config(connection: Connection, name: str) -> bool:
    """Delete the model; tell whether there was one."""
    gone = delete(Table).where(Table.name == name).returning(Table.name)
    return connection.execute(gone).one_or_none() is not None


def _config(row: AnyRow) -> ModelConfig:
    return ModelConfig(**row._asdict())
