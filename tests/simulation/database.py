"""The database of a simulation: what the one on SQLite and the one on PostgreSQL have in common.

Every statement, transaction and row is the product's own. Simulated are the clock that SQL reads, how long a
transaction takes, waits for locks, and what goes wrong with a connection: refused, cut before a commit or
after it, and ended by the server while its process is frozen, as PostgreSQL's
idle_in_transaction_session_timeout does.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, NoReturn, Protocol

import sqlalchemy
from sqlalchemy import Connection, Engine, QueuePool, event, exc
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.util import LRUCache

from spool import clock
from tests.simulation.scheduler import Process, Scheduler

DATABASES = ("sqlite", "postgresql")
LEAST_S, MOST_S = 0.0002, 0.004
"""How long the two ends of a transaction take."""


class DatabaseFaults:
    """What goes wrong now. `down`: how many outages last; `cut` decides at each commit: "before", "after" or
    None; `committed` is told of each commit, and whether the process is; `broke` of a law that the database
    itself sees broken, `noted` of what a reader of the timeline should know, and `named` of the values in a
    statement that is about to be sent within a transaction (on PostgreSQL)."""

    def __init__(self) -> None:
        self.down = 0
        self.cut: Callable[[Process], str | None] = lambda _: None
        self.committed: Callable[[Process, bool], None] = lambda _process, _told: None
        self.noted: Callable[[str], None] = lambda _: None
        self.named: Callable[[Process, Collection[object]], None] = lambda _process, _values: None
        self.broke: Callable[[str, str], None] = lambda _law, _what: None


class Observer(Protocol):
    """Looks at the database from outside: nothing goes wrong there, and every statement is committed."""

    def rows(self, query: str, *values: object) -> Sequence[Any]:
        """The rows of a query in SQL that both databases understand; values take the places of its `?`."""

    def run_script(self, script: str) -> None:
        """Run statements."""


class _Compiled(LRUCache[Any, Any]):
    """What all processes have compiled: their dialects, which a key begins with, are alike."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(key[1:], default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key[1:], value)


class _Pool(QueuePool):
    """A pool whose connections are waited for in virtual time. SQLAlchemy's own waits by the wall clock, and
    meanwhile no other thread of a simulation runs, so none gives its connection back."""

    def __init__(self, *values: Any, **options: Any) -> None:
        super().__init__(*values, **options)
        self._freed = clock.Condition()

    def _do_get(self) -> ConnectionPoolEntry:
        with self._freed:
            if not self._freed.wait_for(self._has_one, self._timeout):
                raise exc.TimeoutError(f"no connection became free in {self._timeout:g} s")
        return super()._do_get()

    def _has_one(self) -> bool:
        return self._pool.qsize() > 0 or self._overflow < self._max_overflow

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        super()._do_return_conn(record)
        self._freed.notify()

    def _dec_overflow(self) -> Literal[True]:
        self._freed.notify()
        return super()._dec_overflow()


class SimulatedDatabase(ABC):
    """Makes the engines of `spool.store.database`, one for each process. `url` is that of its one database,
    which is empty at first."""

    dialect: str

    def __init__(self, scheduler: Scheduler, faults: DatabaseFaults, url: str) -> None:
        self.url = url
        self._scheduler, self._faults = scheduler, faults
        self._compiled = _Compiled(2000)

    def create_engine(self, url: Any, **options: Any) -> Engine:
        """In place of SQLAlchemy's, for the process whose thread asks."""
        engine = sqlalchemy.create_engine(url, **options, poolclass=_Pool)
        engine._compiled_cache = self._compiled
        process = self._scheduler.current().process
        event.listen(engine, "begin", lambda connection: self._begin(process, connection))
        dialect: Any = engine.dialect
        commit = dialect.do_commit
        dialect.do_commit = lambda connection: self._commit(process, connection, commit)
        self._prepare(engine, process)
        return engine

    @abstractmethod
    def freeze(self, process: Process) -> None:
        """Freeze the process, and end its write transactions once the server's patience is over."""

    @abstractmethod
    def end_transactions(self) -> None:
        """End all of them, as a server that goes down does."""

    @abstractmethod
    def observe(self) -> Observer:
        """A connection of nobody's."""

    @abstractmethod
    def finish_setup(self) -> None:
        """The tables are there: from now on SQL reads the virtual clock."""

    @abstractmethod
    def close(self) -> None:
        """The run is over."""

    @abstractmethod
    def _prepare(self, engine: Engine, process: Process) -> None:
        """Put a hand on what a new engine does."""

    @abstractmethod
    def _begin(self, process: Process, connection: Connection) -> None:
        """A transaction begins."""

    @abstractmethod
    def _may_write(self, raw: Any) -> bool:
        """Whether this connection is in a transaction that may have written something."""

    @abstractmethod
    def _is_lost(self, raw: Any) -> bool:
        """Whether the server has ended this connection, or its transaction."""

    @abstractmethod
    def _sever(self, raw: Any, why: str) -> NoReturn:
        """Cut this connection: the server ends what it did, and its client gets an error."""

    @abstractmethod
    def _end(self, raw: Any) -> None:
        """The transaction has ended."""

    def _pause(self) -> None:
        self._scheduler.sleep(self._scheduler.random.uniform(LEAST_S, MOST_S))

    def _commit(self, process: Process, connection: Any, commit: Callable[[Any], None]) -> None:
        raw = getattr(connection, "dbapi_connection", connection)
        if not self._may_write(raw):
            commit(connection)
            return
        self._pause()
        cut = "before" if self._faults.down or self._is_lost(raw) else self._faults.cut(process)
        if cut == "before":
            self._sever(raw, "the connection was cut before the commit")
        commit(connection)
        self._faults.committed(process, cut is None)
        self._end(raw)
        if cut == "after":
            self._sever(raw, "the connection was cut after the commit")
        self._pause()
