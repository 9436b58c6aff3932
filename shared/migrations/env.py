"""Alembic's entry: runs revisions on the connection that `shared.migrate` hands over."""

from alembic import context

from shared.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    transactional_ddl=False,  # the transaction around all revisions is the caller's
)
context.run_migrations()
