"""A second thread beside a read."""

import threading

import pytest
from sqlalchemy import Connection, exc, select, text

from ops.testbed.rows import queued
from spool.errors import StorageError
from spool.store import Database
from spool.store.two_threads import two_threads
from spool.tables import jobs


def thread_of(tx: Connection) -> int:
    assert tx.scalar(select(jobs.c.id)) is None
    return threading.get_ident()


def test_the_second_function_runs_at_the_same_time_on_a_connection_of_its_own(db: Database) -> None:
    met = threading.Barrier(2, timeout=30)
    with db.read() as tx, two_threads(tx) as threads:
        assert threads.first is tx

        def meet(own: Connection) -> int:
            met.wait()
            return thread_of(own)

        first, second = threads.both(lambda: meet(threads.first), lambda: meet(threads.second))
    assert first == threading.get_ident()
    assert second != first


def test_a_read_that_comes_meanwhile_does_all_by_itself(db: Database) -> None:
    mine = threading.get_ident()
    with db.read() as tx, two_threads(tx), db.read() as own, two_threads(own) as threads:
        both = threads.both(lambda: thread_of(threads.first), lambda: thread_of(threads.second))
    assert both == (mine, mine)
    with db.read() as tx, two_threads(tx) as threads:
        assert threads.both(lambda: 1, threading.get_ident)[1] != mine, "it is free again"


@pytest.mark.parametrize("failing", ["first", "second"])
def test_an_error_of_either_is_raised_once_both_have_ended(db: Database, failing: str) -> None:
    ended = []

    def work(name: str, own: Connection) -> None:
        if name == failing:
            own.execute(text("SELECT * FROM nowhere"))
        ended.append(name)

    with pytest.raises((StorageError, exc.SQLAlchemyError)), db.read() as tx, two_threads(tx) as threads:
        threads.both(lambda: work("first", threads.first), lambda: work("second", threads.second))
    assert ended == [{"first": "second", "second": "first"}[failing]]


def test_sqlite_reads_its_file_as_memory_and_sees_what_others_commit_meanwhile(
    sqlite_url: str,
) -> None:
    db = Database(sqlite_url)
    for name in ("before", "after"):
        job = queued(db, name=name)
        with db.read() as tx, two_threads(tx) as threads:
            for own in (threads.first, threads.second):
                assert own.exec_driver_sql("PRAGMA mmap_size").scalar()
                assert own.scalar(select(jobs.c.name).where(jobs.c.id == job.id)) == name
    db.close()


def test_the_second_connection_may_not_write(db: Database) -> None:
    with pytest.raises((StorageError, exc.SQLAlchemyError)), db.read() as tx, two_threads(tx) as threads:
        threads.second.execute(jobs.delete())
