"""Steps of planned turns."""

import sqlalchemy as sa
from alembic import op

from shared.tables.base import Json, UtcTime

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

OPEN = "state IN ('pending', 'ready', 'running', 'waiting')"


def upgrade() -> None:
    op.create_table(
        "plan_steps",
        sa.Column("turn_id", sa.String(40), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("step_id", sa.String(64), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("dependencies", Json, nullable=False),
        sa.Column("tool_hint", sa.Text(), nullable=True),
        sa.Column("model_hint", sa.Text(), nullable=True),
        sa.Column("reuse", sa.String(64), nullable=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("crashes", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_until", UtcTime(), nullable=True),
        sa.Column("rung_at", UtcTime(), nullable=True),
        sa.Column("rings", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("started_at", UtcTime(), nullable=True),
        sa.Column("finished_at", UtcTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["turn_id"], ["turns.id"], name="fk_plan_steps_turn_id_turns", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("turn_id", "round", "step_id", name="pk_plan_steps"),
    )
    op.create_index(
        "ix_plan_steps_open",
        "plan_steps",
        ["turn_id"],
        postgresql_where=sa.text(OPEN),
        sqlite_where=sa.text(OPEN),
    )


def downgrade() -> None:
    op.drop_table("plan_steps")
