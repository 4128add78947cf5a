"""The engine behind the store: one class over SQLite and PostgreSQL.

Handles the dialects' differences (write-ahead log, BEGIN IMMEDIATE, busy timeout; statement and lock
timeouts) and turns a database that does not answer into `StorageError`. Every wait for PostgreSQL ends: the
server has its timeouts, and a watchdog on this side closes a connection that got no answer. Behind a
PgBouncer that lends connections for a transaction (`?pooler=transaction` in the URL) no state is left in the
session.
"""

import os
import re
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, exc, make_url, text
from sqlalchemy.engine import URL, ExecutionContext
from sqlalchemy.pool import ConnectionPoolEntry

from spool import clock
from spool.errors import DiskFull, SettingsError, SpoolError, StorageError
from spool.settings.home import FOLDER_MODE, make_private_file

BUSY_TIMEOUT_S = 30  # SQLite: how long a writer waits for the one before it
CONNECT_TIMEOUT_S = 5
POOL_TIMEOUT_S = 10  # how long to wait for a connection of the pool
STATEMENT_TIMEOUT_S = 30
# Longer than a silent holder keeps its locks, so that whoever waits for one gets them.
LOCK_TIMEOUT_S = 5
IDLE_IN_TRANSACTION_S = 2  # a frozen process must not hold rows that others need
WATCHDOG_GRACE_S = 2.0  # the server's own timeouts come first
WATCHDOG_INTERVAL_S = 0.5
# A pooled connection used within this time is tested only if the server has sent something.
PING_AFTER_S = 1.0
_MAPPED_BYTES = 2**31  # no build of SQLite maps more, unless told so
PING_TIMEOUT_S = 3.0
POOLER = "pooler"  # in the URL's query
BINARY = "binary_results"  # an execution option
# A server that vanished silently is given up after this; TCP alone would wait for hours.
KEEPALIVE = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # ms
}

_NO_TABLES = "The database has no tables yet: run the migrations (python -m migrations upgrade)."
_OTHER_TABLES = (
    "The database was made by another version of Spool ({cause}): run the migrations (python -m migrations "
    "upgrade), or start with a new SPOOL_HOME."
)


def driver_url(url: str) -> URL:
    """The URL with the driver that Spool ships: psycopg for PostgreSQL, pysqlite for SQLite.

    Raises SettingsError for any other database, and for a pooler that is not known.
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
    """Connections to one database. Safe to share between threads; not across a fork."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 20,
        statement_seconds: float = STATEMENT_TIMEOUT_S,
        idle_seconds: float | None = None,
    ) -> None:
        """For PostgreSQL: `statement_seconds`, how long one statement or commit may take; `idle_seconds`, how
        long a transaction may wait for its own process before the server ends it, by default
        `IDLE_IN_TRANSACTION_S`."""
        parsed = driver_url(url)
        self.dialect = "sqlite" if parsed.drivername.startswith("sqlite") else "postgresql"
        if self.dialect == "sqlite":
            file = Path(str(parsed.database))
            file.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            make_private_file(file)  # it contains transcripts; SQLite's log beside it gets the same mode
        pooled = POOLER in parsed.query
        limits = _limits(statement_seconds, IDLE_IN_TRANSACTION_S if idle_seconds is None else idle_seconds)
        self.engine: Engine = create_engine(
            parsed.difference_update_query([POOLER]),
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_timeout=POOL_TIMEOUT_S,
            connect_args=_connect_args(self.dialect, pooled, limits),
        )
        self._watchdog = _Watchdog(statement_seconds + WATCHDOG_GRACE_S)
        if pooled:
            event.listen(self.engine, "connect", _configure_pooled)
            event.listen(self.engine, "begin", partial(_limit_transaction, limits))
        self._single = self.engine
        if self.dialect == "sqlite":
            event.listen(self.engine, "connect", _sqlite_connect)
            event.listen(self.engine, "begin", _sqlite_begin)
        else:
            # Shares the pool. Without BEGIN and ROLLBACK a statement is a single round trip.
            self._single = self.engine.execution_options(isolation_level="AUTOCOMMIT")
            event.listen(self.engine, "before_cursor_execute", _fetch_binary)
            event.listen(self.engine, "checkin", _note_use)
            event.listen(self.engine, "checkout", self._ping_if_idle)
            self._watchdog.watch(self.engine)

    def __repr__(self) -> str:
        return f"Database({self.engine.url.render_as_string(hide_password=True)!r})"

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A write transaction: committed at the end of the block, rolled back on any error.

        On SQLite it holds the single write lock from the start. Raises StorageError if the database does not
        answer; constraint violations are passed on, since they are bugs.
        """
        with _storage_errors(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def read(self, idle_seconds: float | None = None) -> Iterator[Connection]:
        """A read-only transaction with one view of the data; the database refuses writes in it.

        `idle_seconds`: how long its caller may do something else between two statements, if longer than
        `IDLE_IN_TRANSACTION_S`.
        """
        with _storage_errors(), read_on(self.engine) as connection:
            if idle_seconds is not None:
                allow_idle(connection, idle_seconds)
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
        self._watchdog.stop()
        self.engine.dispose()

    def _ping_if_idle(self, connection: Any, record: ConnectionPoolEntry, _proxy: object) -> None:  # noqa: ANN401
        fresh = clock.monotonic() - record.info.get("used", clock.monotonic()) < PING_AFTER_S
        try:
            if not fresh or _has_something_to_say(connection):
                self._watchdog.arm(connection, PING_TIMEOUT_S)
                self.engine.dialect.do_ping(connection)
                self._watchdog.disarm(connection)
        except self.engine.dialect.loaded_dbapi.Error as error:
            raise exc.DisconnectionError from error  # the pool reconnects


@contextmanager
def read_on(engine: Engine) -> Iterator[Connection]:
    """A read-only transaction, for use within a `Database.read`, which explains its errors."""
    with engine.connect() as connection:
        connection = connection.execution_options(spool_read_only=True, postgresql_readonly=True)
        with connection.begin():
            yield connection


READING_SECONDS = 30.0
"""For `allow_idle`: a record of a day is read meanwhile."""


def allow_idle(tx: Connection, seconds: float) -> None:
    """Let this transaction's process do something else for so long between two statements."""
    if tx.dialect.name == "postgresql":
        tx.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = {round(1000 * seconds)}")


def map_file(tx: Connection) -> None:
    """Let SQLite read its file as memory from now on, on this connection: megabytes of small pages take half
    the time. For large reads alone, since a disk that fails ends the process then, not just the read."""
    if tx.dialect.name == "sqlite":
        tx.exec_driver_sql(f"PRAGMA mmap_size={_MAPPED_BYTES}")


class _Watchdog:
    """Closes connections on which a statement or a commit got no answer for `seconds`: a frozen server, or a
    network that drops everything, sends no error. Its thread starts with the first watch."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._armed: dict[int, tuple[float, Any]] = {}
        self._stopping = clock.Event()

    def watch(self, engine: Engine) -> None:
        """Watch every connection of the engine."""

        def before(connection: Connection, *_: object) -> None:
            if not connection.invalidated:
                self.arm(connection.connection.dbapi_connection)

        def after(connection: Connection, *_: object) -> None:
            self.disarm(connection.connection.dbapi_connection)

        event.listen(engine, "before_cursor_execute", before)
        event.listen(engine, "after_cursor_execute", after)
        event.listen(engine, "commit", before)
        event.listen(engine, "rollback", before)
        event.listen(engine, "checkin", lambda connection, _record: self.disarm(connection))
        clock.Thread(target=self._run, name="database-watchdog", daemon=True).start()

    def arm(self, connection: object, seconds: float | None = None) -> None:
        """A statement was sent to the server."""
        self._armed[id(connection)] = (clock.monotonic() + (seconds or self._seconds), connection)

    def disarm(self, connection: object) -> None:
        """The server has answered."""
        self._armed.pop(id(connection), None)

    def stop(self) -> None:
        """Stop closing connections."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(WATCHDOG_INTERVAL_S):
            now = clock.monotonic()
            for key, entry in list(self._armed.items()):
                if entry[0] < now and self._armed.pop(key, None) is entry:
                    _hang_up(entry[1])


def _hang_up(connection: Any) -> None:  # noqa: ANN401 - psycopg by way of the pool
    """Wake the thread that waits for this connection with an error. Only the socket is touched: the
    connection itself belongs to that thread."""
    import psycopg  # not at the top: a process with SQLite does without

    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as own:
        own.shutdown(socket.SHUT_RDWR)


def _has_something_to_say(connection: Any) -> bool:  # noqa: ANN401 - psycopg by way of the pool
    """Whether the server sent something unasked, as it does when it shuts down; takes no round trip."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _note_use(_connection: object, record: ConnectionPoolEntry) -> None:
    record.info["used"] = clock.monotonic()


def _connect_args(dialect: str, pooled: bool, limits: dict[str, str]) -> dict[str, Any]:
    if dialect == "sqlite":
        return {"timeout": BUSY_TIMEOUT_S}
    arguments = {"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "spool", **KEEPALIVE}
    if pooled:
        # The next transaction may use another session, without statements prepared or settings made in this
        # one.
        return arguments | {"prepare_threshold": None}
    options = " ".join(f"-c {name}={value}" for name, value in limits.items())
    return arguments | {"options": f"{options} -c timezone=UTC"}


def _limits(statement_seconds: float, idle_seconds: float) -> dict[str, str]:
    return {
        "statement_timeout": f"{round(1000 * statement_seconds)}ms",
        "lock_timeout": f"{LOCK_TIMEOUT_S}s",
        "idle_in_transaction_session_timeout": f"{round(1000 * idle_seconds)}ms",
    }


def _limit_transaction(limits: dict[str, str], connection: Connection) -> None:
    """For one transaction, since the next one in this session may be another client's."""
    if connection.get_isolation_level() == "AUTOCOMMIT":
        return
    settings = ", ".join(f"set_config('{k}', '{v}', true)" for k, v in limits.items())
    connection.exec_driver_sql(f"SELECT {settings}")


def _fetch_binary(
    _connection: object,
    cursor: Any,  # noqa: ANN401 - psycopg's
    _statement: object,
    _parameters: object,
    context: ExecutionContext | None,
    _many: bool,
) -> None:
    """Bytes come as they are, not as twice as many digits, where a statement asks for it."""
    if context is not None and context.execution_options.get(BINARY):
        import psycopg

        cursor.format = psycopg.pq.Format.BINARY


def _configure_pooled(connection: Any, _record: Any) -> None:  # noqa: ANN401 - psycopg by way of the pool
    # One of the few settings that PgBouncer carries from session to session.
    connection.autocommit = True
    connection.execute("SET TIME ZONE 'UTC'")
    connection.autocommit = False


def _sqlite_connect(connection: Any, _record: Any) -> None:  # noqa: ANN401 - sqlite3 by way of the pool
    connection.isolation_level = None  # we issue BEGIN ourselves
    for pragma in (
        f"busy_timeout={BUSY_TIMEOUT_S * 1000}",  # first, since the next statement may already have to wait
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
        raise _outage(str(error.orig)) from error
    except exc.InvalidRequestError as error:
        # The pool reports like this that connections broke one after the other as it lent them.
        if "connection is closed" in str(error):
            raise StorageError("The connection to the database was lost.") from error
        raise
    except exc.ProgrammingError as error:
        if stale := _stale_tables(str(error.orig)):
            raise stale from error
        raise
    except exc.DBAPIError as error:
        if error.connection_invalidated:
            raise StorageError("The connection to the database was lost.") from error
        raise


def _outage(cause: str) -> SpoolError:
    """What an error of the database is, by its own words."""
    lower = cause.lower()
    if "disk is full" in lower or "no space left" in lower:
        return DiskFull("The database's disk is full.")
    if stale := _stale_tables(cause):
        return stale
    if "is locked" in lower or "timeout" in lower:
        return StorageError("The database is busy.")
    return StorageError("The database does not answer.")


def _stale_tables(cause: str) -> StorageError | None:
    """The error of a database without tables, or with those of another version."""
    cause = cause.partition("\n")[0]
    if re.search("no such column|has no column named|^column .* does not exist", cause):
        return StorageError(_OTHER_TABLES.format(cause=cause))
    if re.search("no such table|^relation .* does not exist", cause):
        return StorageError(_NO_TABLES)
    return None
