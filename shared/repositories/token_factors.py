"""What workers learned of models' tokenizers, windows and parameters, for all workers."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select, update
from sqlalchemy.dialects import postgresql, sqlite

from shared.clock import now
from shared.tables import TokenFactors as Table

# `(ascii, other, tools, tokens)`: the shape of a prompt and its reported size.
StoredSample = tuple[float, float, float, int]
SAMPLE_NUMBERS = 4


@dataclass(frozen=True, slots=True)
class ModelKey:
    """A model at a provider."""

    model: str
    base_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What is known of one model."""

    # Oldest first.
    samples: tuple[StoredSample, ...] = ()
    # The window as the provider stated it; None if it never did.
    context_size: int | None = None
    # Parameters of requests that the provider does not know.
    refused: frozenset[str] = frozenset()


_GET = select(Table.samples, Table.context_size, Table.refused).where(
    Table.model == bindparam("key_model"),
    Table.base_url == bindparam("key_base_url"),
)
_GET_LOCKED = _GET.with_for_update()


def get_learned(connection: Connection, key: ModelKey) -> Learned:
    """Return what is known of a model."""
    row = connection.execute(_GET, _parameters(key)).one_or_none()
    return Learned() if row is None else _learned(row.samples, row.context_size, row.refused)


def add_learned(
    connection: Connection,
    key: ModelKey,
    more: Learned,
    *,
    max_samples: int,
) -> Learned:
    """Add to what is known of a model and return all of it; the newest max_samples are kept."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    values = {"model": key.model, "base_url": key.base_url}
    connection.execute(
        insert(Table)
        .values(**values, samples=[], context_size=None, refused=[], updated_at=now())
        .on_conflict_do_nothing(),
    )
    row = connection.execute(_GET_LOCKED, _parameters(key)).one()
    known = _learned(row.samples, row.context_size, row.refused)
    samples = (*known.samples, *more.samples)[-max_samples:]
    learned = Learned(
        samples=samples,
        context_size=more.context_size or known.context_size,
        refused=known.refused | more.refused,
    )
    connection.execute(
        update(Table)
        .where(Table.model == key.model, Table.base_url == key.base_url)
        .values(
            samples=[list(sample) for sample in samples],
            context_size=learned.context_size,
            refused=sorted(learned.refused),
            updated_at=now(),
        ),
    )
    return learned


def _parameters(key: ModelKey) -> dict[str, str]:
    return {"key_model": key.model, "key_base_url": key.base_url}


def _learned(
    samples: Sequence[Sequence[float]],
    context_size: int | None,
    refused: Sequence[str],
) -> Learned:
    # A sample of another form was written by another version: it will be seen again.
    known = (sample for sample in samples if len(sample) == SAMPLE_NUMBERS)
    return Learned(
        samples=tuple(
            (ascii_, other, tools, int(tokens)) for ascii_, other, tools, tokens in known
        ),
        context_size=context_size,
        refused=frozenset(refused),
    )
