"""Files, and the attachments of turns and messages."""

import sqlalchemy as sa
from alembic import op

from shared.tables.base import Json, UtcTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# Also what processes of the version before leave in rows that they write.
NONE = sa.text("'[]'")


def upgrade() -> None:
    op.create_table(
        "files",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("mime_type", sa.String(length=100), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_files"),
    )
    for table in ("turns", "messages"):
        op.add_column(table, sa.Column("attachments", Json, nullable=False, server_default=NONE))


def downgrade() -> None:
    for table in ("messages", "turns"):
        op.drop_column(table, "attachments")
    op.drop_table("files")
