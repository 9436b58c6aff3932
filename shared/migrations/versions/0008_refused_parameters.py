"""What providers refused of requests, learned once for all workers."""

import sqlalchemy as sa
from alembic import op

from shared.tables.base import Json

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    column = sa.Column("refused", Json, nullable=False, server_default="[]")
    op.add_column("token_factors", column)


def downgrade() -> None:
    op.drop_column("token_factors", "refused")
