"""The database of a simulation on SQLite: in memory, with the one write lock that SQLite has."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from sqlalchemy import Connection, Engine, event, exc

from spool.store.database import IDLE_IN_TRANSACTION_S, LOCK_TIMEOUT_S
from tests.simulation.database import DatabaseFaults, SimulatedDatabase
from tests.simulation.scheduler import BEGAN, Process, Scheduler


class Cut(sqlite3.OperationalError):
    """The connection is gone."""


class _WriteLock:
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


class _SqliteObserver:
    """An `Observer`."""

    def __init__(self, file: str) -> None:
        self._connection = sqlite3.connect(file, isolation_level=None)
        self._connection.execute("PRAGMA synchronous=OFF")

    def rows(self, query: str, *values: object) -> list[Any]:
        return self._connection.execute(query, values).fetchall()

    def run_script(self, script: str) -> None:
        self._connection.executescript(script)


class SqliteDatabase(SimulatedDatabase):
    """A file in the run's folder."""

    dialect = "sqlite"

    def __init__(self, scheduler: Scheduler, faults: DatabaseFaults, folder: Path) -> None:
        self._file = str(folder / "spool.db")
        super().__init__(scheduler, faults, f"sqlite:///{self._file}")
        self._lock = _WriteLock(scheduler)
        self._lock_owner: Process | None = None
        self._dead: set[int] = set()

    def freeze(self, process: Process) -> None:
        scheduler = self._scheduler
        scheduler.freeze(process)
        holder = self._lock.holder
        if holder is not None and self._lock_owner is process:
            scheduler.sleep(IDLE_IN_TRANSACTION_S)
            if self._lock.holder is holder and process.frozen and not process.dead:
                self._dead.add(id(holder))
                holder.rollback()
                self._lock.give_back(holder)

    def end_transactions(self) -> None:
        """They end when they go on: their statements are refused then."""

    def observe(self) -> _SqliteObserver:
        return _SqliteObserver(self._file)

    def finish_setup(self) -> None:
        """Each connection gets the virtual clock by itself."""

    def close(self) -> None:
        """The file goes with its folder."""

    def _prepare(self, engine: Engine, process: Process) -> None:
        connections: list[Any] = []
        event.listen(engine, "connect", lambda connection, _: self._connected(connection, connections))
        event.listen(engine, "checkin", lambda connection, _: self._lock.give_back(connection))
        dialect: Any = engine.dialect
        roll_back, execute = dialect.do_rollback, dialect.do_execute

        def do_rollback(connection: Any) -> None:
            roll_back(connection)
            raw = getattr(connection, "dbapi_connection", connection)
            self._dead.discard(id(raw))  # as if it were connected anew
            self._lock.give_back(raw)

        def do_execute(cursor: Any, *arguments: Any) -> None:
            self._refuse_dead(cursor.connection)
            execute(cursor, *arguments)

        dialect.do_rollback, dialect.do_execute = do_rollback, do_execute
        process.ends.append(lambda: self._close_all(connections))

    def _connected(self, connection: Any, connections: list[Any]) -> None:
        connection.execute("PRAGMA synchronous=OFF")
        self._dead.discard(id(connection))  # the id of one that is closed
        connections.append(connection)
        functions: dict[str, tuple[int, Callable[..., object]]] = {
            "strftime": (-1, self._strftime),
            "date": (1, lambda _: f"{self._now():%Y-%m-%d}"),
            "julianday": (1, lambda _: self._now().timestamp() / 86400 + 2440587.5),
        }
        for name, (arguments, function) in functions.items():
            # Time stands still while a statement runs, so once for each is enough.
            connection.create_function(name, arguments, function, deterministic=True)

    def _now(self) -> datetime:
        return _at(self._milliseconds())

    def _milliseconds(self) -> int:
        return (BEGAN + self._scheduler.now_ns) // 1_000_000

    def _strftime(self, _: str, moment: str, *changes: str) -> str:
        assert moment == "now", moment
        return _as_text(self._milliseconds(), changes)

    def _begin(self, process: Process, connection: Connection) -> None:
        self._pause()
        if self._faults.down:
            raise _refused("the server is down")
        if connection.get_execution_options().get("spool_read_only"):
            return
        raw = connection.connection.dbapi_connection
        if not self._lock.take(raw):
            raise _refused("lock timeout")
        self._lock_owner = process

    def _may_write(self, raw: Any) -> bool:
        self._refuse_dead(raw)
        return self._lock.holder is raw

    def _is_lost(self, raw: Any) -> bool:
        return id(raw) in self._dead

    def _refuse_dead(self, raw: Any) -> None:
        if id(raw) in self._dead:
            raise Cut("the server ended this transaction")

    def _sever(self, raw: Any, why: str) -> NoReturn:
        raise Cut(why)  # SQLAlchemy rolls back then

    def _end(self, raw: Any) -> None:
        self._lock.give_back(raw)

    def _close_all(self, connections: list[Any]) -> None:
        for connection in connections:
            with suppress(sqlite3.ProgrammingError):  # the pool has closed it
                connection.rollback()
            self._lock.give_back(connection)


def _refused(cause: str) -> exc.OperationalError:
    return exc.OperationalError("BEGIN", {}, Cut(cause))


def _at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


@lru_cache(1000)
def _as_text(milliseconds: int, changes: Sequence[str]) -> str:
    """A time as SQLite writes it; a statement asks for the same one for each of its rows."""
    at = _at(milliseconds)
    for change in changes:
        at += timedelta(seconds=float(change.removesuffix(" seconds")))
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}"
