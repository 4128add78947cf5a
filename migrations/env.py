"""What Alembic runs for every command: it works on the connection that `migrations.transaction` opened."""

from alembic import context

from spool.tables import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    compare_type=True,
    compare_server_default=True,
)
context.run_migrations()
