"""What the version before this one wrote and asks works on this version's schema, as an upgrade needs it
(docs/operations.md, "Upgrading a fleet").

`RELEASED` is where the last release's migrations ended. Whoever releases moves it, and only then may a
migration take away what that release no longer uses.
"""

from pathlib import Path

import pytest
from sqlalchemy import Engine, MetaData, Table, create_engine, inspect

import migrations
from ops.testbed.postgres import PostgresServer
from ops.testbed.rows import bill, chunk, claimed, queued
from spool.domain import JobState
from spool.ids import new_id
from spool.store import Database, get_job, heartbeat, list_workers, load_chunks, now_utc, save_chunk

RELEASED = "0001"
WIDENED: set[str] = set()  # checks that since allow more than they did, each looked at


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'rolling.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.create_database("rolling")


@pytest.fixture
def old(url: str) -> MetaData:
    """The tables as the released version knows them; the database has been upgraded since."""
    migrations.upgrade(url, RELEASED)
    tables, engine = MetaData(), create_engine(url)
    tables.reflect(engine)
    tables.info["checks"] = checks_of(engine, tables)
    engine.dispose()
    migrations.upgrade(url)
    return tables


def checks_of(engine: Engine, tables: MetaData) -> dict[str, str]:
    inspector = inspect(engine)
    return {
        str(check["name"]): str(check["sqltext"])
        for name in tables.tables
        for check in inspector.get_check_constraints(name)
    }


def test_a_migration_adds_and_takes_nothing_away(url: str, old: MetaData) -> None:
    engine = create_engine(url)
    new = MetaData()
    new.reflect(engine)
    problems = [problem for table in old.tables.values() for problem in broken(table, new.tables)]
    checks = checks_of(engine, old)
    changed = {name for name, text in checks.items() if old.info["checks"].get(name) != text}
    engine.dispose()
    assert problems == []
    assert changed == WIDENED, (
        "a check that the released version knows differs: may it still write all it does?"
    )


def broken(table: Table, new: object) -> list[str]:
    """What the released version could no longer do with the table."""
    now = new.get(table.name)  # type: ignore[attr-defined]
    if now is None:
        return [f"{table.name} is gone"]
    found = [f"{column} is gone" for column in table.columns if column.name not in now.c]
    for column in now.columns:
        before = table.c.get(column.name)
        if before is None:
            if not column.nullable and column.server_default is None:
                found.append(f"{column} is new, may not be null and has no default")
        elif (str(before.type), before.nullable) != (str(column.type), column.nullable):
            found.append(f"{column} is {column.type} now, null {column.nullable}")
    known = {index.name for index in table.indexes}
    return found + [
        f"{one.name} is new and unique" for one in now.indexes if one.unique and one.name not in known
    ]


def test_what_the_released_version_writes_the_new_one_goes_on_with(url: str, old: MetaData) -> None:
    worker, job = new_id("wrk"), new_id("job")
    db = Database(url)
    with db.begin() as tx:
        now = tx.execute(now_utc().select()).scalar_one()
        said = {"name": "old", "pool": "cpu", "host": "h", "chip": "c", "version": "0.1.0", "pid": 1}
        times = {"started_at": now, "seen_at": now}
        tx.execute(
            old.tables["workers"]
            .insert()
            .values(
                id=worker,
                models=["demo-tdt"],
                price_per_hour_micros=1,
                concurrency=8,
                state="ready",
                **said,
                **times,
            )
        )
        tx.execute(
            old.tables["jobs"]
            .insert()
            .values(
                id=job,
                project="default",
                state="queued",
                name="a.wav",
                source_kind="file",
                source_uri="file:///a.wav",
                options={"model": "demo-tdt", "decoder": "greedy", "beam": 4, "channels": "mix"},
                pool="cpu",
                queue="spool.cpu",
                created_at=now,
                queued_at=now,
                updated_at=now,
            )
        )
        heartbeat(tx, worker, "ready", 5)
    with db.read() as tx:
        (seen,) = list_workers(tx)
        assert (seen.name, seen.alive, seen.status) == ("old", True, "ready")
        assert (seen.loaded_models, seen.pinned_models, seen.gpu_cores) == (None, None, None)
        assert get_job(tx, job).state is JobState.QUEUED
    claim = claimed(db, job, worker)
    with db.begin() as tx:
        save_chunk(tx, claim, chunk(0), bill(worker))
    with db.read() as tx:
        assert len(load_chunks(tx, claim.job.id)) == 1
    db.close()


def test_what_the_new_version_writes_the_released_one_reads_and_ends(url: str, old: MetaData) -> None:
    db = Database(url)
    job = queued(db).id
    claimed(db, job, "wrk_old")
    jobs = old.tables["jobs"]
    with db.begin() as tx:
        row = tx.execute(jobs.select().where(jobs.c.id == job)).one()
        assert (row.state, row.lease_owner, row.attempt) == ("running", "wrk_old", 1)
        ended = {"state": "done", "finished_at": row.updated_at, "lease_owner": None, "lease_until": None}
        assert tx.execute(jobs.update().where(jobs.c.id == job).values(**ended)).rowcount == 1
    with db.read() as tx:
        assert get_job(tx, job).state is JobState.DONE
    db.close()
