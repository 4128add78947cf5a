"""What Alembic runs for every command: it works on the connection that `migrations.transaction` opened."""

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext

from migrations import is_compared
from spool.tables import metadata
from spool.tables.base import UtcDateTime


def _render(kind: str, item: Any, autogen: AutogenContext) -> str | Literal[False]:  # noqa: ANN401 - Alembic's
    """Name the revisions' own copy of a type of ours."""
    if kind == "type" and isinstance(item, UtcDateTime):
        autogen.imports.add("from migrations.types import UtcDateTime")
        return "UtcDateTime()"
    return False


connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    compare_type=True,
    compare_server_default=True,
    render_item=_render,
    include_object=is_compared,
)
context.run_migrations()
