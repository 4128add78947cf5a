"""The database's revisions, and the programmatic way to move between them.

    python -m migrations upgrade        to the newest, what `spool up` and a deployment run
    python -m migrations downgrade REV  back to a revision, or to `base`
    python -m migrations current        where the database stands
    python -m migrations revision TEXT  draft the next one from the difference to `spool.tables`
    python -m migrations first          write the first one anew, as long as nothing is released

One transaction holds a whole run: it happens entirely or not at all, and two processes that migrate at once
take turns. Knows Alembic, `spool.tables` and the store's URLs; no query of the application is here. Alembic
is imported only for a database that has to change: `spool up` upgrades at each start, mostly for nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, create_engine, event, inspect, text

from spool.errors import SettingsError
from spool.store.database import POOLER, driver_url

if TYPE_CHECKING:
    from alembic.config import Config

LOCK_TIMEOUT = "10s"  # a migration gives up rather than stop the site behind it
STATEMENT_TIMEOUT = "10min"
ADVISORY_LOCK = 0x5350_4F4F_4C  # "SPOOL"

FTS5 = "passage_index"
"""SQLite's full-text index: a table with tables of its own, which no metadata describes."""

__all__ = ["FTS5", "current", "downgrade", "is_compared", "newest", "revision", "transaction", "upgrade"]


def upgrade(url: str, target: str = "head") -> None:
    """Bring the database at `url` up to `target`; makes an SQLite file that is not there."""
    with transaction(url) as connection:
        if target == "head" and _revision_of(connection) == newest():
            return
        from alembic import command

        command.upgrade(_config(connection), target)


def downgrade(url: str, target: str) -> None:
    """Take the database back to revision `target`, or to `base`: empty. What a table held is lost with it."""
    from alembic import command

    with transaction(url) as connection:
        command.downgrade(_config(connection), target)


def current(url: str) -> str | None:
    """The revision that the database stands at; None before the first."""
    with transaction(url) as connection:
        return _revision_of(connection)


def newest() -> str:
    """The newest revision, by the numbers of the files."""
    return max(path.name.partition("_")[0] for path in (Path(__file__).parent / "versions").glob("[0-9]*.py"))


def revision(url: str, message: str) -> None:
    """Write a draft of the next revision, from the difference between the database and `spool.tables`."""
    from alembic import command

    with transaction(url) as connection:
        command.revision(_config(connection), message, autogenerate=True, rev_id=f"{int(newest()) + 1:04d}")


def is_compared(item: object, name: str | None, kind: str, reflected: bool, other: object) -> bool:
    """Whether Alembic compares this table or index. Each database has its own full-text index of passages."""
    del item, reflected
    if kind == "index":
        own = {"ix_passages_terms", "ix_passages_alternative_terms", "ix_passages_pairs"}
        return name not in own or other is not None
    return not (name or "").startswith(FTS5)


@contextmanager
def transaction(url: str) -> Iterator[Connection]:
    """A connection in one transaction, alone among those that migrate.

    Raises SettingsError for a URL that the store refuses, and where PostgreSQL keeps the database in another
    encoding than UTF-8.
    """
    parsed = driver_url(url).difference_update_query([POOLER])
    sqlite = parsed.get_backend_name() == "sqlite"
    if sqlite:
        Path(str(parsed.database)).parent.mkdir(parents=True, exist_ok=True)
    # Of a database that knows no encoding the driver would give bytes.
    engine = create_engine(parsed, connect_args={} if sqlite else {"client_encoding": "utf8"})
    if sqlite:
        # Rebuilding a table in batch mode drops and renames it, which foreign keys would follow.
        event.listen(engine, "connect", _sqlite_connect)
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    try:
        with engine.begin() as connection:
            if not sqlite:
                _check_encoding(connection)
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
                connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'")
            yield connection
    finally:
        engine.dispose()


def _check_encoding(connection: Connection) -> None:
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding != "UTF8":
        raise SettingsError(
            f"The database's encoding is {encoding}. Spool needs UTF8: make the database anew with"
            " CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0."
        )


def _revision_of(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def _config(connection: Connection) -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    config.attributes["connection"] = connection
    return config


def _sqlite_connect(connection: object, _record: object) -> None:
    connection.isolation_level = None  # type: ignore[attr-defined]  # sqlite3's, by way of the pool
    connection.execute("PRAGMA busy_timeout=30000")  # type: ignore[attr-defined]
    connection.execute("PRAGMA foreign_keys=OFF")  # type: ignore[attr-defined]
