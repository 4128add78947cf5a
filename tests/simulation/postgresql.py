"""The database of a simulation on PostgreSQL: a server of its own, of which one backend runs at a time.

All simulated processes are one thread, so none may wait for a row that another one holds. A backend that
waits for a lock is therefore stopped (SIGSTOP) for as long as it waits, while other threads of the simulation
run. Once the lock is its own it goes on by itself, one backend after the other in an order that the seed
decides. So nothing ever happens at once, and the same seed gives the same run; the server's locks, their
queues, its snapshots and what a statement does after it has waited are PostgreSQL's own. The limits that it
has on waits and on idle transactions are kept in virtual time.
"""

import os
import select
import signal
from collections.abc import Collection, Generator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NoReturn, Self

import psycopg
from psycopg import pq, waiting
from sqlalchemy import Connection, Engine, event

from ops.testbed.postgres import PostgresServer
from spool.store.database import IDLE_IN_TRANSACTION_S, LOCK_TIMEOUT_S
from tests.simulation.database import DatabaseFaults, SimulatedDatabase
from tests.simulation.scheduler import BEGAN, Process, Scheduler

SERVER = {
    # Nothing that the server would do by itself, at a time of its own.
    "autovacuum": "off",
    "bgwriter_lru_maxpages": "0",
    "checkpoint_timeout": "1d",
    "max_wal_size": "8GB",
    "max_parallel_workers_per_gather": "0",
    "synchronize_seqscans": "off",
    "jit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "synchronous_commit": "off",
    "deadlock_timeout": "10ms",
}
LEAST_S, MOST_S = 0.0001, 0.001
"""How long a statement takes, besides its waits for locks."""
LOOK_MS = 2
"""After so much real time without an answer we ask whether the backend waits for a lock."""
_CLOCK = """
CREATE SCHEMA simulated;
CREATE FUNCTION simulated.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
    RETURN current_setting('simulated.now')::timestamptz;
ALTER DATABASE simulation SET search_path = simulated, pg_catalog, public;
"""
"""Found before PostgreSQL's own, for which the product asks without a schema. Each statement's time is a
setting, since it stays what it was while the statement waits."""


class _Cursor(psycopg.Cursor[Any]):
    """Lets others run before each statement of a transaction, and sets the statement's time."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        values = params.values() if isinstance(params, Mapping) else params or ()
        self.connection.begin_statement(values)  # type: ignore[attr-defined]  # of _Connection
        return super().execute(query, params, **options)

    def executemany(self, *arguments: Any, **options: Any) -> None:
        self.connection.begin_statement(())  # type: ignore[attr-defined]
        super().executemany(*arguments, **options)


class _Connection(psycopg.Connection[Any]):
    """A connection of a simulated process. `in_write`: within a transaction that may write; `waits` and
    `answers` count its waits for locks and its answers."""

    backends: "_Backends"
    process: Process
    pid: int
    in_write = False
    waits = answers = 0

    def begin_statement(self, values: Collection[object]) -> None:
        """A statement with these values is about to be sent."""
        self.backends.begin_statement(self, values)

    def wait(self, gen: Generator[Any, Any, Any], *_: Any, **_options: Any) -> Any:
        """Send and receive until `gen` has its answer; others run while the backend waits for a lock."""
        if not hasattr(self, "backends"):
            return super().wait(gen)
        backends = self.backends
        backends.refuse_when_down(self)
        poll, fd = select.poll(), self.pgconn.socket
        try:
            wanted = next(gen)
            while True:
                poll.register(fd, _events(wanted))
                while not (found := poll.poll(LOOK_MS)):
                    if backends.find_blockers([self])[self.pid]:
                        backends.wait_for_lock(self)
                wanted = gen.send(_ready(found[0][1]))
        except StopIteration as end:
            return end.value
        except psycopg.errors.QueryCanceled as error:  # by us
            raise psycopg.errors.LockNotAvailable("canceling statement due to lock timeout") from error
        except psycopg.errors.DeadlockDetected:
            backends.note_deadlock(self)
            raise
        finally:
            self.answers += 1
            backends.let_go_on()


def _events(wanted: int) -> int:
    events = select.POLLIN if wanted & waiting.WAIT_R else 0
    return events | (select.POLLOUT if wanted & waiting.WAIT_W else 0)


def _ready(events: int) -> int:
    ready = waiting.READY_R if events & ~select.POLLOUT else 0
    return ready | (waiting.READY_W if events & select.POLLOUT else 0)


class _Backends:
    """The server's processes, by their clients; `blocked` are those that wait for locks, and are stopped."""

    def __init__(
        self, scheduler: Scheduler, faults: DatabaseFaults, control: psycopg.Connection[Any]
    ) -> None:
        self._scheduler, self._faults, self._control = scheduler, faults, control
        self._server = Process("postgresql")
        self.all: list[_Connection] = []
        self.blocked: list[_Connection] = []

    # --- called by clients ----------------------------------------------------------------------------------

    def begin_statement(self, client: _Connection, values: Collection[object]) -> None:
        if client.in_write:
            self._scheduler.sleep(self._scheduler.random.uniform(LEAST_S, MOST_S))
            self._faults.named(client.process, values)
        if client.closed or client.pgconn.transaction_status == pq.TransactionStatus.INERROR:
            return
        now = datetime.fromtimestamp(BEGAN / 1e9, UTC) + timedelta(
            microseconds=self._scheduler.now_ns // 1000
        )
        client.pgconn.exec_(f"SET simulated.now = '{now:%Y-%m-%d %H:%M:%S.%f+00}'".encode())

    def refuse_when_down(self, client: _Connection) -> None:
        if self._faults.down:
            self.end(client)

    def wait_for_lock(self, client: _Connection) -> None:
        """Let other threads run until the backend goes on; after too long its statement is cancelled."""
        if self._waits_in_a_circle(client) and not self._is_still_waiting(client):
            return  # PostgreSQL has noticed
        os.kill(client.pid, signal.SIGSTOP)
        self.blocked.append(client)
        self._faults.noted(
            f"{client.process.name} waits for {self._name(self.find_blockers([client])[client.pid])}"
        )
        self._limit_wait(client)
        self._scheduler.wait(client, lambda: client not in self.blocked, None)

    def note_deadlock(self, client: _Connection) -> None:
        self._faults.broke("nothing deadlocks", f"a statement of {client.process.name} waited in a circle")

    # --- the server -----------------------------------------------------------------------------------------

    def find_blockers(self, clients: list[_Connection]) -> dict[int, list[int]]:
        """By the number of a backend, those that it waits for."""
        pids = [each.pid for each in clients]
        query = "SELECT pid, pg_blocking_pids(pid) FROM unnest(%s::int[]) AS pid"
        return dict(self._control.execute(query, [pids]).fetchall())

    def let_go_on(self) -> None:
        """Let each backend go on that has got its lock, one after the other."""
        while self.blocked:
            blockers = self.find_blockers(self.blocked)
            free = [each for each in self.blocked if not blockers[each.pid]]
            if not free:
                return
            self._let_one_go_on(self._scheduler.random.choice(free))

    def end(self, client: _Connection) -> None:
        """End the backend, whatever it does, and its transaction with it."""
        if client not in self.all:
            return
        self.all.remove(client)
        if client in self.blocked:
            self._unblock(client)
        self._control.execute("SELECT pg_terminate_backend(%s, 60000)", [client.pid])
        client.in_write = False
        self.let_go_on()

    def end_idle(self, client: _Connection) -> None:
        """End a transaction of a frozen process, unless that goes on in time."""
        answers, waits = client.answers, client.waits
        self._scheduler.sleep(IDLE_IN_TRANSACTION_S)
        moved = (client.answers, client.waits) != (answers, waits)
        if client.in_write and client.process.frozen and not moved and client not in self.blocked:
            self.end(client)

    def _name(self, pids: list[int]) -> str:
        """The processes whose backends these are."""
        return ", ".join(sorted({each.process.name for each in self.all if each.pid in pids}))

    def spawn(self, name: str, run: Any) -> None:
        """A thread of the server."""
        self._scheduler.spawn(self._server, name, run)

    def _let_one_go_on(self, client: _Connection) -> None:
        os.kill(client.pid, signal.SIGCONT)
        if self._is_still_waiting(client):
            os.kill(client.pid, signal.SIGSTOP)
            self._limit_wait(client)
        else:
            self._unblock(client)

    def _is_still_waiting(self, client: _Connection) -> bool:
        """Whether a backend that runs comes to wait for a lock, and not to its answer."""
        poll = select.poll()
        poll.register(client.pgconn.socket, select.POLLIN)
        while not poll.poll(LOOK_MS):
            if self.find_blockers([client])[client.pid] and not self._waits_in_a_circle(client):
                return True
        return False

    def _unblock(self, client: _Connection) -> None:
        os.kill(client.pid, signal.SIGCONT)
        self.blocked.remove(client)
        self._scheduler.wake(client)
        if client.process.frozen:
            self.spawn("idle", partial(self.end_idle, client))

    def _limit_wait(self, client: _Connection) -> None:
        """PostgreSQL's `lock_timeout` counts for each lock."""
        client.waits += 1
        self.spawn("lock timeout", partial(self._expire, client, client.waits))

    def _expire(self, client: _Connection, waits: int) -> None:
        self._scheduler.sleep(LOCK_TIMEOUT_S)
        if client in self.blocked and client.waits == waits:
            self._control.execute("SELECT pg_cancel_backend(%s)", [client.pid])
            os.kill(client.pid, signal.SIGCONT)
            select.select([client.pgconn.socket], [], [])
            self._unblock(client)
            self.let_go_on()

    def _waits_in_a_circle(self, client: _Connection) -> bool:
        """Whether it waits for a backend that waits for it."""
        blockers = self.find_blockers([client, *self.blocked])
        reached, ahead = set[int](), list(blockers[client.pid])
        while ahead:
            if (pid := ahead.pop()) not in reached:
                reached.add(pid)
                ahead += blockers.get(pid, [])
        return client.pid in reached


class _PostgresObserver:
    """An `Observer`."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def rows(self, query: str, *values: object) -> list[Any]:
        return self._connection.execute(query.replace("?", "%s").encode(), values).fetchall()

    def run_script(self, script: str) -> None:
        self._connection.execute(script.encode())


class PostgresDatabase(SimulatedDatabase):
    """A throw-away server."""

    dialect = "postgresql"

    def __init__(self, scheduler: Scheduler, faults: DatabaseFaults) -> None:
        self._server = PostgresServer(settings=SERVER)
        self._server.start()
        super().__init__(scheduler, faults, self._server.create_database("simulation"))
        self._backends = _Backends(scheduler, faults, self._server.admin())

    def freeze(self, process: Process) -> None:
        self._scheduler.freeze(process)
        for client in self._backends.all:
            if client.process is process and client.in_write and client not in self._backends.blocked:
                self._backends.spawn("idle", partial(self._backends.end_idle, client))

    def end_transactions(self) -> None:
        for client in list(self._backends.all):
            if client.in_write:
                self._backends.end(client)

    def observe(self) -> _PostgresObserver:
        connection = self._server.connect("simulation")
        connection.execute("SET TIME ZONE 'UTC'")
        return _PostgresObserver(connection)

    def finish_setup(self) -> None:
        self.observe().run_script(_CLOCK)

    def close(self) -> None:
        for client in self._backends.blocked:
            os.kill(client.pid, signal.SIGCONT)
        self._server.stop(abruptly=True)
        self._server.close()

    def _prepare(self, engine: Engine, process: Process) -> None:
        event.listen(engine, "do_connect", partial(self._connect, process))
        dialect: Any = engine.dialect
        roll_back = dialect.do_rollback

        def do_rollback(connection: Any) -> None:
            try:
                roll_back(connection)
            finally:
                self._end(getattr(connection, "dbapi_connection", connection))

        dialect.do_rollback = do_rollback
        process.ends.append(lambda: self._close_all(process))

    def _connect(
        self, process: Process, _dialect: object, _record: object, _arguments: object, options: dict[str, Any]
    ) -> _Connection:
        if self._faults.down:
            raise psycopg.OperationalError("connection refused")
        own = {**options, "options": "-c timezone=UTC", "cursor_factory": _Cursor}
        client = _Connection.connect(**own)
        client.backends, client.process, client.pid = self._backends, process, client.info.backend_pid
        self._backends.all.append(client)
        return client

    def _begin(self, process: Process, connection: Connection) -> None:
        self._pause()
        raw: Any = connection.connection.dbapi_connection
        read_only = connection.get_execution_options().get("spool_read_only")
        raw.in_write = not (read_only or raw.autocommit)

    def _may_write(self, raw: Any) -> bool:
        return bool(raw.in_write)

    def _is_lost(self, raw: Any) -> bool:
        return raw not in self._backends.all

    def _sever(self, raw: Any, why: str) -> NoReturn:
        self._backends.end(raw)
        raw.close()
        raise psycopg.OperationalError(why)

    def _end(self, raw: Any) -> None:
        raw.in_write = False

    def _close_all(self, process: Process) -> None:
        for client in [each for each in self._backends.all if each.process is process]:
            self._backends.end(client)
            client.pgconn.finish()
