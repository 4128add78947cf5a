"""The store behind a real PgBouncer that lends connections for a transaction each."""

import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import text

import migrations
from ops.testbed.postgres import PostgresServer
from ops.testbed.rows import queued
from spool.domain import Rules
from spool.errors import SettingsError
from spool.store import Claim, ClaimRequest, Database, claim_next, driver_url
from tests.live.pgbouncer import Pooler

CONNECTIONS = 3
WORKERS = 24


@pytest.fixture
def pooled_url(postgres: PostgresServer) -> Iterator[str]:
    """A migrated, empty database whose sessions are not in UTC unless they are told."""
    postgres.create_database("pooled")
    with postgres.connect("pooled") as connection:
        connection.execute("ALTER DATABASE pooled SET timezone = 'Asia/Tokyo'")
    pooler = Pooler(postgres, CONNECTIONS)
    try:
        pooler.wait("pooled")
        migrations.upgrade(pooler.url("pooled"))
        yield pooler.url("pooled")
    finally:
        pooler.close()


def test_more_workers_than_connections_claim_each_job_once(pooled_url: str) -> None:
    db = Database(pooled_url)
    wanted = {queued(db, pool="cpu").id for _ in range(2 * WORKERS)}
    claimed: list[str] = []
    zones: set[str] = set()

    def work(number: int) -> None:
        own = Database(pooled_url, pool_size=2)
        request = ClaimRequest(f"wrk_{number}", "cpu", f"w{number}", 60.0, 3, alone=True)
        while True:
            with own.begin() as tx:
                claim = claim_next(tx, request, Rules())
            with own.look() as tx:
                zones.add(str(tx.scalar(text("SHOW timezone"))))
            if not isinstance(claim, Claim):
                break
            claimed.append(claim.job.id)
        own.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    db.close()
    assert sorted(claimed) == sorted(wanted)
    assert zones == {"UTC"}


def test_reads_stay_reads(pooled_url: str) -> None:
    db = Database(pooled_url)
    with db.read() as tx:
        assert tx.scalar(text("SHOW transaction_read_only")) == "on"
    with db.begin() as tx:
        assert tx.scalar(text("SHOW transaction_read_only")) == "off"
    db.close()


def test_another_word_for_a_pooler_is_refused() -> None:
    with pytest.raises(SettingsError, match="pooler must be transaction"):
        driver_url("postgresql://h/d?pooler=session")
