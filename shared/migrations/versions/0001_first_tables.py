"""Conversations, messages, turns and what belongs to them; model configurations."""

import sqlalchemy as sa
from alembic import op

from shared.tables.base import Json, UtcTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

OPEN = sa.text("status IN ('queued', 'running', 'waiting')")
ACTIVE = sa.text("status IN ('running', 'waiting')")


def upgrade() -> None:
    op.create_table(
        "conversations",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("turn_count", sa.Integer(), nullable=False),
        sa.Column("metadata", Json, nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_conversations"),
    )
    op.create_index("ix_conversations_updated_at", "conversations", ["updated_at"], unique=False)
    op.create_table(
        "model_configs",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=True),
        sa.Column("base_url", sa.Text(), nullable=True),
        sa.Column("api_key_env", sa.String(length=100), nullable=True),
        sa.Column("context_size", sa.Integer(), nullable=True),
        sa.Column("max_output_tokens", sa.Integer(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_model_configs"),
        sa.UniqueConstraint("role", name="uq_model_configs_role"),
    )
    op.create_table(
        "turns",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("conversation_id", sa.String(length=40), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("phase", sa.String(length=32), nullable=True),
        sa.Column("mode", sa.String(length=16), nullable=False),
        sa.Column("input", sa.Text(), nullable=False),
        sa.Column("instructions", sa.Text(), nullable=True),
        sa.Column("model", sa.String(length=200), nullable=True),
        sa.Column("tools", Json, nullable=True),
        sa.Column("metadata", Json, nullable=False),
        sa.Column("first_position", sa.Integer(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("crashes", sa.Integer(), nullable=False),
        sa.Column("lease_owner", sa.String(length=80), nullable=True),
        sa.Column("lease_until", UtcTime(), nullable=True),
        sa.Column("deadline_at", UtcTime(), nullable=True),
        sa.Column("rung_at", UtcTime(), nullable=True),
        sa.Column("rings", sa.Integer(), nullable=False),
        sa.Column("pending_injections", sa.Integer(), nullable=False),
        sa.Column("injection_count", sa.Integer(), nullable=False),
        sa.Column("cancel_requested_at", UtcTime(), nullable=True),
        sa.Column("cancel_by", sa.String(length=200), nullable=True),
        sa.Column("cancel_reason", sa.Text(), nullable=True),
        sa.Column("stream_epoch", sa.Integer(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("usage", Json, nullable=True),
        sa.Column("iterations", sa.Integer(), nullable=True),
        sa.Column("compacted", sa.Boolean(), nullable=False),
        sa.Column("error", Json, nullable=True),
        sa.Column("idempotency_key", sa.String(length=255), nullable=True),
        sa.Column("idempotency_hash", sa.String(length=64), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("started_at", UtcTime(), nullable=True),
        sa.Column("finished_at", UtcTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name="fk_turns_conversation_id_conversations",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_turns"),
        sa.UniqueConstraint("conversation_id", "number", name="uq_turns_conversation_id_number"),
        sa.UniqueConstraint("idempotency_key", name="uq_turns_idempotency_key"),
    )
    op.create_index(
        "ix_turns_open", "turns", ["id"], unique=False, postgresql_where=OPEN, sqlite_where=OPEN
    )
    op.create_index(
        "uq_turns_active_conversation",
        "turns",
        ["conversation_id"],
        unique=True,
        postgresql_where=ACTIVE,
        sqlite_where=ACTIVE,
    )
    op.create_table(
        "injections",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("turn_id", sa.String(length=40), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("idempotency_key", sa.String(length=255), nullable=True),
        sa.Column("idempotency_hash", sa.String(length=64), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("settled_at", UtcTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["turn_id"], ["turns.id"], name="fk_injections_turn_id_turns", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_injections"),
        sa.UniqueConstraint(
            "turn_id", "idempotency_key", name="uq_injections_turn_id_idempotency_key"
        ),
        sa.UniqueConstraint("turn_id", "seq", name="uq_injections_turn_id_seq"),
    )
    op.create_table(
        "journal",
        sa.Column("turn_id", sa.String(length=40), nullable=False),
        sa.Column("loop", sa.String(length=64), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("data", Json, nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["turn_id"], ["turns.id"], name="fk_journal_turn_id_turns", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("turn_id", "loop", "seq", name="pk_journal"),
    )
    op.create_table(
        "messages",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("conversation_id", sa.String(length=40), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.String(length=40), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name="fk_messages_conversation_id_conversations",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["turn_id"], ["turns.id"], name="fk_messages_turn_id_turns", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_messages"),
        sa.UniqueConstraint(
            "conversation_id", "position", name="uq_messages_conversation_id_position"
        ),
    )
    op.create_index("ix_messages_turn_id", "messages", ["turn_id"], unique=False)
    op.create_table(
        "tool_calls",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("turn_id", sa.String(length=40), nullable=False),
        sa.Column("loop", sa.String(length=64), nullable=False),
        sa.Column("iteration", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("is_error", sa.Boolean(), nullable=False),
        sa.Column("elapsed_s", sa.Double(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("finished_at", UtcTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["turn_id"], ["turns.id"], name="fk_tool_calls_turn_id_turns", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_tool_calls"),
        sa.UniqueConstraint(
            "turn_id", "loop", "iteration", "seq", name="uq_tool_calls_turn_id_loop_iteration_seq"
        ),
    )


def downgrade() -> None:
    op.drop_table("tool_calls")
    op.drop_index("ix_messages_turn_id", table_name="messages")
    op.drop_table("messages")
    op.drop_table("journal")
    op.drop_table("injections")
    op.drop_index(
        "uq_turns_active_conversation",
        table_name="turns",
        postgresql_where=ACTIVE,
        sqlite_where=ACTIVE,
    )
    op.drop_index("ix_turns_open", table_name="turns", postgresql_where=OPEN, sqlite_where=OPEN)
    op.drop_table("turns")
    op.drop_table("model_configs")
    op.drop_index("ix_conversations_updated_at", table_name="conversations")
    op.drop_table("conversations")
