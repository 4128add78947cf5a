"""Endings of several jobs in one transaction: what is written is what each would have written by itself."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
from sqlalchemy import select, update

from ops.testbed.rows import bill, bill_of, chunk, claimed, let_lapse, queued, registered, reread
from spool.domain import Job, JobState, Passage, Spoken
from spool.store import (
    Claim,
    Database,
    Ending,
    Outcome,
    claim_job,
    finish_job,
    finish_jobs,
    job_cost,
    load_chunks,
    save_chunk,
)
from spool.tables import event_inbox, jobs, passage_words, passages, turns, workers

FOUND = (Passage.of(0, None, 2, (Spoken("red", 0.0, 0.4, 0.9), Spoken("lamp", 0.5, 0.9, 0.8))),)


def outcome(claim: Claim, seconds: float = 30.0) -> Outcome:
    key = f"jobs/{claim.job.id}/attempt-{claim.attempt}/transcript.json"
    return Outcome(seconds, key, "a" * 64, 1.0, 2, content_sha256="b" * 64, warnings=["odd"], complete=True)


def ending(claim: Claim, seconds: float = 30.0, engine_ns: int = 1_000_000_001) -> Ending:
    charge = bill(claim.worker_id, engine_ns)
    return Ending(claim, outcome(claim, seconds), FOUND, (chunk(engine_ns=engine_ns), charge))


def charged(db: Database, worker: str, number: int, project: str = "default") -> list[Claim]:
    """Claims to new jobs whose project was charged ten seconds for each."""
    with db.begin() as tx:
        tx.execute(turns.delete().where(turns.c.project == project))
        row = {"pool": "cpu", "project": project, "start": 0.0, "served": 10.0, "share": 2.0, "claims": 1}
        tx.execute(
            turns.insert().values(**row, updated_at=select(workers.c.seen_at).limit(1).scalar_subquery())
        )
    claims = [claimed(db, queued(db, project=project, tags={"a": "b"}).id, worker) for _ in range(number)]
    ids = [claim.job.id for claim in claims]
    with db.begin() as tx:
        tx.execute(update(jobs).where(jobs.c.id.in_(ids)).values(forecast_seconds=10.0, pool="cpu"))
    return [replace(claim, job=reread(db, claim.job.id)) for claim in claims]


def finish_each(db: Database, endings: Sequence[Ending]) -> None:
    for one in endings:
        assert one.chunk is not None
        with db.begin() as tx:
            finish_job(tx, one.claim, one.outcome, one.passages)
            save_chunk(tx, one.claim, *one.chunk, renewed=True)


def as_written(db: Database, claim: Claim) -> dict[str, object]:
    """All that an ending leaves behind, without ids and times."""
    job_id, other = claim.job.id, ("id", "job_id", "worker_id", "updated_at", "created_at", "at", "rowid")
    job = reread(db, job_id)
    assert job.finished_at is not None
    fixed: dict[str, Any] = {each.name: None for each in fields(Job) if each.name.endswith("_at")}
    same = replace(job, id="", source=job.source, transcript_key="", **fixed)
    rows: dict[str, object] = {"job": same, "key": (job.transcript_key or "").replace(job_id, "")}
    with db.read() as tx:
        for table in (event_inbox, passages, passage_words):
            query = select(table).where(table.c.job_id == job_id).order_by(*table.primary_key)
            rows[table.name] = [
                {name: value for name, value in row._mapping.items() if name not in other}
                for row in tx.execute(query)
            ]
        lines = [row._mapping for row in bill_of(tx, job_id)]
        rows["lines"] = [
            {name: line[name] for name in line if name not in (*other, "worker")} for line in lines
        ]
        rows["chunks"], rows["cost"] = load_chunks(tx, job_id), job_cost(tx, job_id)
    return rows


def turn(db: Database, project: str) -> tuple[float, float]:
    with db.read() as tx:
        row = tx.execute(select(turns).where(turns.c.project == project)).one()
    return row.served, row.mean_seconds


def test_together_they_write_what_each_writes_by_itself(db: Database) -> None:
    alone, together = registered(db, "alone"), registered(db, "together")
    lengths = (30.0, 31.5, 8.25)
    ones = [ending(*pair) for pair in zip(charged(db, alone, 3), lengths, strict=True)]
    finish_each(db, ones)
    after = turn(db, "default")
    several = [ending(*pair) for pair in zip(charged(db, together, 3), lengths, strict=True)]
    with db.begin() as tx:
        assert finish_jobs(tx, several) == {one.claim.job.id for one in several}
    for one, other in zip(ones, several, strict=True):
        assert as_written(db, one.claim) == as_written(db, other.claim)
        assert as_written(db, other.claim)["passages"], "there is something to be found"
    assert turn(db, "default") == pytest.approx(after)
    with db.read() as tx:
        busy = {row.name: row.busy_ns for row in tx.execute(select(workers.c.name, workers.c.busy_ns))}
    assert busy["alone"] == busy["together"] == 3 * 1_000_000_001


def test_a_claim_that_no_longer_holds_is_left_out(db: Database) -> None:
    worker, other = registered(db), registered(db, "other")
    kept, lost, ended = (claimed(db, worker_id=worker) for _ in range(3))
    let_lapse(db, lost.job.id)
    with db.begin() as tx:
        assert claim_job(tx, lost.job.id, other, 60) is not None
        finish_job(tx, ended, outcome(ended))
    before = reread(db, lost.job.id), reread(db, ended.job.id)
    with db.begin() as tx:
        assert finish_jobs(tx, [ending(one) for one in (lost, kept, ended)]) == {kept.job.id}
    assert (reread(db, lost.job.id), reread(db, ended.job.id)) == before
    assert reread(db, kept.job.id).state is JobState.DONE
    with db.begin() as tx:
        assert finish_jobs(tx, [ending(one) for one in (lost, kept, ended)]) == set()
        assert [len(load_chunks(tx, one.job.id)) for one in (lost, kept, ended)] == [0, 1, 0]
        busy = tx.scalar(select(workers.c.busy_ns).where(workers.c.id == worker))
    assert busy == 1_000_000_001


def test_it_waits_for_no_row_that_another_transaction_holds(postgres_url: str) -> None:
    db = Database(postgres_url)
    worker = registered(db)
    free, held = (claimed(db, worker_id=worker) for _ in range(2))
    with db.begin() as frozen:
        frozen.execute(select(jobs.c.id).where(jobs.c.id == held.job.id).with_for_update())
        with db.begin() as tx:
            assert finish_jobs(tx, [ending(held), ending(free)]) == {free.job.id}
    assert [reread(db, one.job.id).state.value for one in (held, free)] == ["running", "done"]
    db.close()


def test_charges_add_up_and_a_chunk_that_is_there_is_wasted(db: Database) -> None:
    worker = registered(db)
    first, second = (claimed(db, worker_id=worker) for _ in range(2))
    with db.begin() as tx:
        save_chunk(tx, first, chunk(1, engine_ns=7), bill(worker, 7))
        save_chunk(tx, second, chunk(0, engine_ns=5), bill(worker, 5))
    with db.begin() as tx:
        assert len(finish_jobs(tx, [ending(first), ending(second)])) == 2
        added, doubled = (bill_of(tx, one.job.id) for one in (first, second))
        assert len(load_chunks(tx, first.job.id)) == 2
        assert [one.heard.engine_ns for one in load_chunks(tx, second.job.id)] == [5]
    assert [(line.engine_ns, line.wasted, line.audio_samples) for line in added] == [
        (1_000_000_008, False, 960_000)
    ]
    assert added[0].cost_nanos == 100_000
    assert {(line.engine_ns, line.wasted) for line in doubled} == {(5, False), (1_000_000_001, True)}
