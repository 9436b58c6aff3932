"""The declarative base: constraint names by convention, column types alike on both stores."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, Dialect, MetaData, String
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.types import TypeDecorator, TypeEngine

from shared.attachment import Attachment
from shared.ids import FileId

# JSON as the store keeps it best.
Json = JSON().with_variant(JSONB(), "postgresql")

SQLITE_TIME_LENGTH = len("2026-01-31 12:00:00.000")


class Base(DeclarativeBase):
    """Base of all tables."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        },
    )


class UtcTime(TypeDecorator[datetime]):
    """A moment in UTC: `timestamptz` on Postgres, fixed-width text with milliseconds on SQLite.

    The width is fixed so that SQLite compares moments by comparing text.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Choose the column type of the store."""
        if dialect.name == "sqlite":
            return dialect.type_descriptor(String(SQLITE_TIME_LENGTH))
        return dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> object:
        """Write an aware moment."""
        if value is None or dialect.name != "sqlite":
            return value
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:SQLITE_TIME_LENGTH]

    def process_result_value(self, value: object, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Read an aware moment in UTC."""
        if isinstance(value, str):
            return datetime.fromisoformat(value).replace(tzinfo=UTC)
        return value.astimezone(UTC) if isinstance(value, datetime) else None


class AttachmentList(TypeDecorator[tuple[Attachment, ...]]):
    """Attachments as a JSON list of `{file_id, mime_type}`, in order."""

    impl = Json
    cache_ok = True

    def process_bind_param(self, value: tuple[Attachment, ...] | None, dialect: Dialect) -> object:  # noqa: ARG002
        """Write a list of objects."""
        return [asdict(item) for item in value or ()]

    def process_result_value(self, value: object, dialect: Dialect) -> tuple[Attachment, ...]:  # noqa: ARG002
        """Read what was written."""
        items = value if isinstance(value, list) else []
        return tuple(
            Attachment(file_id=FileId(item["file_id"]), mime_type=item["mime_type"])
            for item in items
        )
