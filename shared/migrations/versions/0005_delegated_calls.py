"""Tool calls that wait for a person, or run as tasks of their own."""

import sqlalchemy as sa
from alembic import op

from shared.tables.base import UtcTime

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

INDEX = "ix_tool_calls_delegated"
DELEGATED = "state = 'waiting_approval' OR (queue IS NOT NULL AND state IN ('ready', 'running'))"


def upgrade() -> None:
    for column in _call_columns():
        op.add_column("tool_calls", column)
    op.create_index(
        INDEX,
        "tool_calls",
        ["id"],
        postgresql_where=sa.text(DELEGATED),
        sqlite_where=sa.text(DELEGATED),
    )
    op.add_column("turns", sa.Column("remaining_s", sa.Float(), nullable=True))


def downgrade() -> None:
    op.drop_column("turns", "remaining_s")
    op.drop_index(INDEX, "tool_calls")
    for column in _call_columns():
        op.drop_column("tool_calls", column.name)


def _call_columns() -> list[sa.Column[object]]:
    return [
        sa.Column("queue", sa.String(16), nullable=True),
        sa.Column("is_repeatable", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("timeout_s", sa.Float(), nullable=True),
        sa.Column("approval", sa.String(16), nullable=True),
        sa.Column("approval_reason", sa.Text(), nullable=True),
        sa.Column("expires_at", UtcTime(), nullable=True),
        sa.Column("lease_until", UtcTime(), nullable=True),
        sa.Column("rung_at", UtcTime(), nullable=True),
        sa.Column("rings", sa.Integer(), nullable=False, server_default="0"),
    ]
