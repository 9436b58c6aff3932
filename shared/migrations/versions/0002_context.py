"""Checkpoints of conversations, and what was learned of models' tokenizers."""

import sqlalchemy as sa
from alembic import op

from shared.tables.base import Json, UtcTime

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Whoever changes or deletes a message, by whatever way, takes the checkpoints that cover it along.
FORGET = """
    UPDATE conversations SET history_version = history_version + 1
        WHERE id = OLD.conversation_id;
    DELETE FROM summaries
        WHERE conversation_id = OLD.conversation_id AND until_position >= OLD.position;
"""
CHANGES = {"messages_updated": "UPDATE", "messages_deleted": "DELETE"}


def upgrade() -> None:
    op.add_column(
        "conversations",
        sa.Column("history_version", sa.Integer(), nullable=False, server_default="0"),
    )
    op.create_table(
        "summaries",
        sa.Column("conversation_id", sa.String(length=40), nullable=False),
        sa.Column("until_position", sa.Integer(), nullable=False),
        sa.Column("method", sa.String(length=16), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name="fk_summaries_conversation_id_conversations",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("conversation_id", "until_position", name="pk_summaries"),
    )
    op.create_table(
        "token_factors",
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("base_url", sa.Text(), nullable=False),
        sa.Column("samples", Json, nullable=False),
        sa.Column("context_size", sa.Integer(), nullable=True),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("model", "base_url", name="pk_token_factors"),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION forget_summaries() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN {FORGET} RETURN NULL; END $$"
        )
    for name, change in CHANGES.items():
        op.execute(_trigger(name, change))


def downgrade() -> None:
    is_postgres = op.get_bind().dialect.name == "postgresql"
    for name in CHANGES:
        op.execute(f"DROP TRIGGER {name}{' ON messages' if is_postgres else ''}")
    if is_postgres:
        op.execute("DROP FUNCTION forget_summaries()")
    op.drop_table("token_factors")
    op.drop_table("summaries")
    op.drop_column("conversations", "history_version")


def _trigger(name: str, change: str) -> str:
    head = f"CREATE TRIGGER {name} AFTER {change} ON messages FOR EACH ROW"
    if op.get_bind().dialect.name == "postgresql":
        return f"{head} EXECUTE FUNCTION forget_summaries()"
    return f"{head} BEGIN {FORGET} END"
