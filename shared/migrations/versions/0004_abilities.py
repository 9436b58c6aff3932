"""What a configured model can do."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

COLUMNS = ("tool_call", "json_mode")


def upgrade() -> None:
    for name in COLUMNS:
        op.add_column("model_configs", sa.Column(name, sa.Boolean(), nullable=True))


def downgrade() -> None:
    for name in COLUMNS:
        op.drop_column("model_configs", name)
