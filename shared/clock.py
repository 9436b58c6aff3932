"""The store's clock, as SQL. Leases and deadlines are compared on it, never on a worker's."""

from datetime import datetime
from typing import Any

from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import ColumnElement
from sqlalchemy.sql.functions import GenericFunction

from shared.tables.base import UtcTime


class _Now(GenericFunction[datetime]):
    type = UtcTime()
    inherit_cache = True
    name = "turnmill_now"


def now(offset_s: float | ColumnElement[float] = 0.0) -> ColumnElement[datetime]:
    """Return the store's present moment plus offset_s, as an SQL expression.

    On Postgres it moves on within a transaction, so that a wait for a lock does not age it.
    """
    return _Now(offset_s)


@compiles(_Now, "postgresql")
def _on_postgres(element: _Now, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401 - the compiler's own signature
    offset = compiler.process(element.clauses, **options)
    return f"(clock_timestamp() + make_interval(secs => {offset}))"


@compiles(_Now, "sqlite")
def _on_sqlite(element: _Now, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401 - the compiler's own signature
    offset = compiler.process(element.clauses, **options)
    return f"strftime('%Y-%m-%d %H:%M:%f', 'now', {offset} || ' seconds')"
