"""A connection that is frozen inside a transaction costs nobody else anything (law 10), on PostgreSQL."""

import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Connection, func, select, text

from ops.soak.half_open import HalfOpenProxy
from ops.testbed.postgres import PostgresServer
from ops.testbed.rows import bill, chunk, queued, registered, reread
from spool.domain import JobState, Rules
from spool.errors import StorageError
from spool.store import (
    IDLE_IN_TRANSACTION_S,
    Claim,
    ClaimRequest,
    Database,
    SweepLimits,
    claim_next,
    save_chunk,
    sweep,
)
from spool.tables import turn_charges, turns
from tests.live.blocking import held_up
from tests.spool.store.choosing import finish

JOBS = 120
THREADS = 6


@pytest.fixture
def db(postgres_url: str) -> Iterator[Database]:
    database = Database(postgres_url, idle_seconds=IDLE_IN_TRANSACTION_S)
    yield database
    database.close()


def _asker(name: str, lease: float = 60.0) -> ClaimRequest:
    return ClaimRequest(f"wrk_{name}", "cpu", name, lease, alone=False)


@contextmanager
def silent(db: Database) -> Iterator[Connection]:
    """A transaction whose machine falls silent in the block; the statement after it finds it given up."""
    with _given_up(), db.begin() as tx:
        yield tx
        tx.execute(text("SELECT 1"))


@contextmanager
def silent_at_commit(db: Database) -> Iterator[Connection]:
    """The same; the commit finds it."""
    with _given_up(), db.begin() as tx:
        yield tx


@contextmanager
def _given_up() -> Iterator[None]:
    given_up = False
    try:
        yield
    except StorageError:
        given_up = True
    assert given_up


def test_others_claim_while_a_claim_is_frozen_after_it_took_its_turn(db: Database, postgres_url: str) -> None:
    for _ in range(JOBS + 1):
        queued(db)
    with db.begin() as tx:  # the turn's row is there
        assert isinstance(claim_next(tx, _asker("first"), Rules()), Claim)
    # Theirs are not given up where this machine itself stands still for seconds.
    others = Database(postgres_url, idle_seconds=120)
    claimed: list[str] = []

    def work(number: int) -> None:
        while len(claimed) < JOBS:
            with others.begin() as tx:
                claim = claim_next(tx, _asker(f"w{number}"), Rules())
            if isinstance(claim, Claim):
                claimed.append(claim.job.id)
                finish(others, claim)
            else:
                time.sleep(0.1)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(THREADS)]
    blocked: set[str] = set()
    with silent(db) as tx:
        frozen = claim_next(tx, _asker("frozen"), Rules())
        assert isinstance(frozen, Claim)
        backend = tx.scalar(text("SELECT pg_backend_pid()"))
        for thread in threads:
            thread.start()
        end = time.monotonic() + 1
        while time.monotonic() < end:
            blocked |= held_up(others, backend)
            time.sleep(0.05)
        with others.read() as reading:
            assert reading.scalar(select(func.count()).select_from(turn_charges)), "put aside, and not lost"
        for thread in threads:
            thread.join(60)
    others.close()
    assert blocked == set(), "nobody waited for the frozen one"
    assert len(set(claimed)) == JOBS
    assert frozen.job.id in claimed, "its job is free again"
    with db.read() as tx:
        charged = tx.scalar(select(turns.c.claims)) or 0
        charged += tx.scalar(select(func.coalesce(func.sum(turn_charges.c.claims), 0))) or 0
    assert charged == JOBS + 1, "each claim was charged once"


def test_a_job_comes_back_although_its_save_is_frozen(db: Database) -> None:
    worker = registered(db)
    queued(db)
    with db.begin() as tx:
        claim = claim_next(tx, ClaimRequest(worker, "cpu", "mini", 1.0, alone=False), Rules())
    assert isinstance(claim, Claim)
    began = time.monotonic()
    with silent(db) as tx:
        save_chunk(tx, claim, chunk(), bill(worker))
        while reread(db, claim.job.id).state is JobState.RUNNING:
            assert time.monotonic() - began < 10
            time.sleep(0.2)
            with db.begin() as sweeping:
                sweep(sweeping, SweepLimits())
    assert reread(db, claim.job.id).state is JobState.QUEUED


def test_a_statement_that_nobody_answers_ends(postgres: PostgresServer, postgres_url: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="spool-"))
    proxy = HalfOpenProxy(folder / ".s.PGSQL.5432", postgres.folder / ".s.PGSQL.5432")
    url = postgres_url.replace(str(postgres.folder), str(folder))
    db = Database(url, statement_seconds=0.5, idle_seconds=IDLE_IN_TRANSACTION_S)
    try:
        queued(db)
        for begin in (partial(silent, db), partial(silent_at_commit, db)):
            began = time.monotonic()
            with begin() as tx:
                assert isinstance(claim_next(tx, _asker("frozen"), Rules()), Claim)
                proxy.swallow()
            assert time.monotonic() - began < 6
            proxy.restore()
            time.sleep(IDLE_IN_TRANSACTION_S + 0.5)
        with db.begin() as tx:
            assert isinstance(claim_next(tx, _asker("next"), Rules()), Claim)
    finally:
        db.close()
        proxy.close()
        shutil.rmtree(folder)
