"""The tools that were picked for a conversation."""

import sqlalchemy as sa
from alembic import op

from shared.tables.base import Json

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("conversations", sa.Column("tools", Json, nullable=True))


def downgrade() -> None:
    op.drop_column("conversations", "tools")
