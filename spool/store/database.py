"""Connections to SQLite and PostgreSQL, and their failures as Spool's errors.

Sets each dialect up (write-ahead log, BEGIN IMMEDIATE, busy timeout; statement and lock timeouts) and raises
`StorageError` for a database that does not answer. Behind a PgBouncer in transaction mode
(`?pooler=transaction` in the URL) it leaves nothing in the session. Tables are for the other modules.
"""

import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, exc, make_url, text
from sqlalchemy.engine import URL
from sqlalchemy.pool import ConnectionPoolEntry

from spool.errors import DiskFull, SettingsError, StorageError

BUSY_TIMEOUT_S = 30  # SQLite: how long a writer waits for another
CONNECT_TIMEOUT_S = 10
STATEMENT_TIMEOUT_S = 60
LOCK_TIMEOUT_S = 30
# A pooled connection that was used within this time is pinged only if the server sent something.
PING_AFTER_S = 1.0
IDLE_IN_TRANSACTION_S = 120  # a stopped process must not lock rows forever
POOLER = "pooler"  # in the URL's query
# When to give up on a server that vanished silently; TCP alone would wait for hours.
KEEPALIVE = {
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # ms
}

_NO_TABLES = "The database has no tables yet: run the migrations (python -m migrations upgrade)."


def driver_url(url: str) -> URL:
    """The URL with the driver that Spool ships: psycopg for PostgreSQL, pysqlite for SQLite.

    Raises SettingsError for any other database, and for an unknown pooler.
    """
    try:
        parsed = make_url(url)
    except exc.ArgumentError:
        raise SettingsError("The database URL cannot be read.") from None
    dialect = parsed.get_backend_name()
    if dialect in {"postgresql", "postgres"}:
        if parsed.query.get(POOLER, "transaction") != "transaction":
            raise SettingsError("In the database URL, pooler must be transaction or absent.")
        return parsed.set(drivername="postgresql+psycopg")
    if dialect == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise SettingsError("The SQLite database must be a file, since several processes share it.")
        return parsed.set(drivername="sqlite+pysqlite")
    raise SettingsError(f"Use an SQLite or PostgreSQL database, not {dialect}.")


class Database:
    """Connections to one database. Thread-safe; do not use it after a fork."""

    def __init__(self, url: str, *, pool_size: int = 20) -> None:
        parsed = driver_url(url)
        self.dialect = "sqlite" if parsed.drivername.startswith("sqlite") else "postgresql"
        if self.dialect == "sqlite":
            Path(str(parsed.database)).parent.mkdir(parents=True, exist_ok=True)
        pooled = POOLER in parsed.query
        self.engine: Engine = create_engine(
            parsed.difference_update_query([POOLER]),
            pool_size=pool_size,
            max_overflow=pool_size,
            connect_args=_connect_args(self.dialect, pooled),
        )
        if pooled:
            event.listen(self.engine, "connect", _pooled_connect)
        self._single = self.engine
        if self.dialect == "sqlite":
            event.listen(self.engine, "connect", _sqlite_connect)
            event.listen(self.engine, "begin", _sqlite_begin)
        else:
            # Shares the pool. Without BEGIN and ROLLBACK a statement takes a single round trip.
            self._single = self.engine.execution_options(isolation_level="AUTOCOMMIT")
            event.listen(self.engine, "checkin", _note_use)
            event.listen(self.engine, "checkout", self._ping_if_idle)

    def __repr__(self) -> str:
        return f"Database({self.engine.url.render_as_string(hide_password=True)!r})"

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A write transaction: committed at the end of the block, rolled back on any error.

        On SQLite it holds the one write lock from its first moment. Raises StorageError when the database
        does not answer; constraint violations are raised as they are, since they are defects.
        """
        with _storage_errors(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read-only transaction with one view of the data; a write in it is refused by the database."""
        with _storage_errors(), self.engine.connect() as connection:
            connection = connection.execution_options(spool_read_only=True, postgresql_readonly=True)
            with connection.begin():
                yield connection

    @contextmanager
    def look(self) -> Iterator[Connection]:
        """For a single SELECT: a `read` at a third of the cost on PostgreSQL."""
        if self.dialect == "sqlite":
            with self.read() as tx:
                yield tx
            return
        with _storage_errors(), self._single.connect() as connection:
            yield connection

    def ping(self) -> None:
        """Check that the database answers. Raises StorageError."""
        with self.read() as tx:
            tx.execute(text("SELECT 1"))

    def close(self) -> None:
        """Close all pooled connections."""
        self.engine.dispose()

    def _ping_if_idle(self, connection: Any, record: ConnectionPoolEntry, _proxy: object) -> None:  # noqa: ANN401
        fresh = time.monotonic() - record.info.get("used", time.monotonic()) < PING_AFTER_S
        try:
            if not fresh or _has_input(connection):
                self.engine.dialect.do_ping(connection)
        except self.engine.dialect.loaded_dbapi.Error as error:
            raise exc.DisconnectionError from error  # the pool reconnects


def _has_input(connection: Any) -> bool:  # noqa: ANN401 - psycopg's, from the pool
    """Whether the server sent something unrequested, as when it shuts down; costs no round trip."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _note_use(_connection: object, record: ConnectionPoolEntry) -> None:
    record.info["used"] = time.monotonic()


def _connect_args(dialect: str, pooled: bool) -> dict[str, Any]:
    if dialect == "sqlite":
        return {"timeout": BUSY_TIMEOUT_S}
    arguments = {"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "spool", **KEEPALIVE}
    if pooled:
        # The next transaction may run in another session, without this one's prepared statements.
        return arguments | {"prepare_threshold": None}
    return arguments | {
        "options": f"-c statement_timeout={STATEMENT_TIMEOUT_S}s -c lock_timeout={LOCK_TIMEOUT_S}s"
        f" -c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_S}s -c timezone=UTC",
    }


def _pooled_connect(connection: Any, _record: Any) -> None:  # noqa: ANN401 - psycopg by way of the pool
    # One of the few settings that PgBouncer carries from session to session.
    connection.autocommit = True
    connection.execute("SET TIME ZONE 'UTC'")
    connection.autocommit = False


def _sqlite_connect(connection: Any, _record: Any) -> None:  # noqa: ANN401 - sqlite3 by way of the pool
    connection.isolation_level = None  # `_sqlite_begin` sends BEGIN
    for pragma in (
        f"busy_timeout={BUSY_TIMEOUT_S * 1000}",  # first, since the next one may have to wait
        "journal_mode=WAL",
        "synchronous=FULL",  # a commit survives a power cut, as on PostgreSQL
        "foreign_keys=ON",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _sqlite_begin(connection: Connection) -> None:
    read_only = bool(connection.get_execution_options().get("spool_read_only"))
    connection.exec_driver_sql(f"PRAGMA query_only={'ON' if read_only else 'OFF'}")
    # IMMEDIATE: taking the write lock later can fail at once, without the busy timeout, on a stale snapshot.
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


@contextmanager
def _storage_errors() -> Iterator[None]:
    try:
        yield
    except exc.TimeoutError as error:
        raise StorageError("All database connections are in use.") from error
    except (exc.OperationalError, exc.InterfaceError, exc.InternalError) as error:
        cause = str(error.orig).lower()
        if "disk is full" in cause or "no space left" in cause:
            raise DiskFull("The database's disk is full.") from error
        if "no such table" in cause:
            raise StorageError(_NO_TABLES) from error
        if "is locked" in cause or "timeout" in cause:
            raise StorageError("The database is busy.") from error
        raise StorageError("The database does not answer.") from error
    except exc.InvalidRequestError as error:
        # The pool raises this when connections break one after another as they are checked out.
        if "connection is closed" in str(error):
            raise StorageError("The connection to the database broke.") from error
        raise
    except exc.ProgrammingError as error:
        if "relation" in str(error.orig) and "does not exist" in str(error.orig):
            raise StorageError(_NO_TABLES) from error
        raise
    except exc.DBAPIError as error:
        if error.connection_invalidated:
            raise StorageError("The connection to the database broke.") from error
        raise
