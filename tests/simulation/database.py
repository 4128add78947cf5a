"""The database of a simulation: SQLite under virtual time, with the faults of a server behind a network.

Every statement, transaction and row is the product's own. Simulated are the clock that SQL reads, how long a
transaction takes, the wait for the write lock, and what goes wrong with a connection: refused, cut before a
commit or after it, and ended by the server while its process is frozen, as PostgreSQL's
idle_in_transaction_session_timeout does.
"""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Engine, event, exc

from spool.store.database import IDLE_IN_TRANSACTION_S, LOCK_TIMEOUT_S
from tests.simulation.scheduler import BEGAN, Process, Scheduler

LEAST_S, MOST_S = 0.0002, 0.004
"""How long the two ends of a transaction take."""


class Cut(sqlite3.OperationalError):
    """The connection is gone."""


class WriteLock:
    """The one write transaction that SQLite has at a time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.holder: Any = None

    def take(self, connection: Any) -> bool:
        """Wait for the lock; False if that took too long."""
        free = self._scheduler.wait(self, lambda: self.holder is None, LOCK_TIMEOUT_S)
        if free:
            self.holder = connection
        return free

    def give_back(self, connection: Any) -> None:
        """Give it back, if it is this connection's."""
        if self.holder is connection:
            self.holder = None
            self._scheduler.wake(self)


class DatabaseFaults:
    """What goes wrong now. `down`: how many outages last; `cut` decides at each commit: "before", "after" or
    None; `committed` is told of each commit, and whether the
    process is; `foreign`: whether this lease is none of this process."""

    def __init__(self) -> None:
        self.down = 0
        self.cut: Callable[[Process], str | None] = lambda _: None
        self.committed: Callable[[Process, bool], None] = lambda _process, _told: None
        self.foreign: Callable[[Process, str | None], bool] = lambda _process, _owner: False


class SimulatedDatabase:
    """Makes the engines of `spool.store.database`, one for each process."""

    def __init__(self, scheduler: Scheduler, faults: DatabaseFaults) -> None:
        self._scheduler, self._faults = scheduler, faults
        self._lock = WriteLock(scheduler)
        self._lock_owner: Process | None = None
        self._dead: set[int] = set()

    def create_engine(self, url: Any, **options: Any) -> Engine:
        """In place of SQLAlchemy's, for the process whose thread asks."""
        engine = sqlalchemy.create_engine(url, **options)
        process = self._scheduler.current().process
        connections: list[Any] = []
        event.listen(
            engine, "connect", lambda connection, _: self._connected(process, connection, connections)
        )
        event.listen(engine, "begin", lambda connection: self._begin(process, connection))
        event.listen(engine, "checkin", lambda connection, _: self._lock.give_back(connection))
        dialect: Any = engine.dialect
        commit, roll_back, execute = dialect.do_commit, dialect.do_rollback, dialect.do_execute

        def do_commit(connection: Any) -> None:
            self._commit(process, connection, commit)

        def do_rollback(connection: Any) -> None:
            roll_back(connection)
            self._dead.discard(id(_raw(connection)))  # as if it were connected anew
            self._lock.give_back(_raw(connection))

        def do_execute(cursor: Any, *arguments: Any) -> None:
            if id(cursor.connection) in self._dead:
                raise Cut("the server ended this transaction")
            execute(cursor, *arguments)

        dialect.do_commit, dialect.do_rollback, dialect.do_execute = do_commit, do_rollback, do_execute
        process.ends.append(lambda: self._close_all(connections))
        return engine

    def freeze(self, process: Process) -> None:
        """Freeze the process, and end its write transaction once the server's patience is over."""
        scheduler = self._scheduler
        scheduler.freeze(process)
        holder = self._lock.holder
        if holder is not None and self._lock_owner is process:
            scheduler.sleep(IDLE_IN_TRANSACTION_S)
            if self._lock.holder is holder and process.frozen and not process.dead:
                self._dead.add(id(holder))
                holder.rollback()
                self._lock.give_back(holder)

    def _connected(self, process: Process, connection: Any, connections: list[Any]) -> None:
        connection.execute("PRAGMA synchronous=OFF")
        self._dead.discard(id(connection))  # the id of one that is closed
        connections.append(connection)
        connection.create_function("simulated_foreign", 1, lambda owner: self._faults.foreign(process, owner))
        connection.create_function("strftime", -1, self._strftime)
        connection.create_function("date", 1, lambda _: f"{self._now():%Y-%m-%d}")
        connection.create_function("julianday", 1, lambda _: self._now().timestamp() / 86400 + 2440587.5)

    def _now(self) -> datetime:
        return datetime.fromtimestamp((BEGAN + self._scheduler.now_ns) // 1_000_000 / 1000, UTC)

    def _strftime(self, _: str, moment: str, *changes: str) -> str:
        now = self._now()
        assert moment == "now", moment
        for change in changes:
            now += timedelta(seconds=float(change.removesuffix(" seconds")))
        return f"{now:%Y-%m-%d %H:%M:%S}.{now.microsecond // 1000:03d}"

    def _begin(self, process: Process, connection: Connection) -> None:
        self._scheduler.sleep(self._scheduler.random.uniform(LEAST_S, MOST_S))
        if self._faults.down:
            raise _refused("the server is down")
        if connection.get_execution_options().get("spool_read_only"):
            return
        raw = connection.connection.dbapi_connection
        if not self._lock.take(raw):
            raise _refused("lock timeout")
        self._lock_owner = process

    def _commit(self, process: Process, connection: Any, commit: Callable[[Any], None]) -> None:
        raw = _raw(connection)
        if id(raw) in self._dead:
            raise Cut("the server ended this transaction")
        if self._lock.holder is not raw:  # it only read
            commit(connection)
            return
        self._scheduler.sleep(self._scheduler.random.uniform(LEAST_S, MOST_S))
        cut = "before" if self._faults.down or id(raw) in self._dead else self._faults.cut(process)
        if cut == "before":
            raise Cut("the connection was cut before the commit")
        commit(connection)
        self._faults.committed(process, cut is None)
        self._lock.give_back(raw)
        if cut == "after":
            raise Cut("the connection was cut after the commit")
        self._scheduler.sleep(self._scheduler.random.uniform(LEAST_S, MOST_S))

    def _close_all(self, connections: list[Any]) -> None:
        for connection in connections:
            with suppress(sqlite3.ProgrammingError):  # the pool has closed it
                connection.rollback()
            self._lock.give_back(connection)


def _raw(connection: Any) -> Any:
    return getattr(connection, "dbapi_connection", connection)


def _refused(cause: str) -> exc.OperationalError:
    return exc.OperationalError("BEGIN", {}, Cut(cause))
