"""Limits and fallbacks of models, and turns that are parked until there is room within them."""

import sqlalchemy as sa
from alembic import op

from shared.tables.base import UtcTime

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

LIMITS = ("max_in_flight", "requests_per_minute", "tokens_per_minute")


def upgrade() -> None:
    for name in LIMITS:
        op.add_column("model_configs", sa.Column(name, sa.Integer(), nullable=True))
    op.add_column("model_configs", sa.Column("fallback", sa.String(length=200), nullable=True))
    op.add_column("turns", sa.Column("not_before", UtcTime, nullable=True))


def downgrade() -> None:
    op.drop_column("turns", "not_before")
    op.drop_column("model_configs", "fallback")
    for name in reversed(LIMITS):
        op.drop_column("model_configs", name)
