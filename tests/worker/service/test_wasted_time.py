"""Wasted time reaches the ledger once, whatever becomes of the answers to its commits."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection

from ops.testbed.rows import bill, bill_of, chunk, claimed, queued, registered
from spool.errors import StorageError
from spool.store import Database, save_chunk, sum_wasted_ns
from worker.service import WastedTime


class Deaf(Database):
    """A real database; while `deaf`, its commits go through and their answers are lost."""

    deaf = False

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        with super().begin() as tx:
            yield tx
        if self.deaf:
            raise StorageError("The connection to the database was lost.")


@pytest.fixture
def db(database_url: str) -> Iterator[Deaf]:
    database = Deaf(database_url)
    yield database
    database.close()


def test_a_commit_whose_answer_was_lost_is_not_done_again(db: Deaf) -> None:
    worker, job = registered(db), queued(db)
    wasted = WastedTime(db)
    for engine_ns in (5, 7, 5):
        wasted.add(job.id, 1, bill(worker, engine_ns, samples=0))
    db.deaf = True
    for _ in range(6):
        assert not wasted.write()
        assert len(wasted) == 3, "nobody knows yet"
    db.deaf = False
    assert wasted.write()
    with db.read() as tx:
        assert sum_wasted_ns(tx, job.id, 1, worker) == 5 + 7 + 5


def test_what_is_left_at_the_end_is_tried_again(db: Deaf, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that ends has one more chance to write it, and a connection may be cut just then."""
    worker, job = registered(db), queued(db)
    wasted = WastedTime(db)
    wasted.add(job.id, 1, bill(worker, 5, samples=0))
    db.deaf = True
    paused: list[float] = []

    def hear_again(seconds: float) -> None:
        paused.append(seconds)
        db.deaf = len(paused) < 3

    monkeypatch.setattr("spool.clock.sleep", hear_again)
    wasted.write_within(60)
    assert len(paused) == 3
    assert len(wasted) == 0
    db.deaf = True
    wasted.add(job.id, 1, bill(worker, 7, samples=0))
    wasted.write_within(0)
    assert len(wasted) == 1, "not for longer than was asked"


def test_a_chunk_that_was_saved_after_all_is_not_billed_as_wasted(db: Deaf) -> None:
    worker = registered(db)
    claim = claimed(db, worker_id=worker)
    db.deaf = True
    with pytest.raises(StorageError), db.begin() as tx:
        save_chunk(tx, claim, chunk(0, engine_ns=9), bill(worker, 9))
    db.deaf = False
    wasted = WastedTime(db)
    wasted.add(claim.job.id, 1, bill(worker, 9, samples=0), unless_saved=(0, 0))
    wasted.add(claim.job.id, 1, bill(worker, 11, samples=0), unless_saved=(0, 1))
    assert wasted.write()
    with db.read() as tx:
        lines = bill_of(tx, claim.job.id)
    assert {(line.wasted, line.engine_ns) for line in lines} == {(False, 9), (True, 11)}
