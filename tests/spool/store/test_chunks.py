"""Lists of phrases kept once, and saved chunks that other options or weights decoded."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func, select

from ops.testbed.rows import bill, bill_of, chunk, claimed, let_lapse, new_job, queued, registered
from spool.domain import AskedOptions, NbestText, phrase_list
from spool.errors import LeaseLost, NotFound
from spool.ids import new_id
from spool.store import (
    Database,
    batches,
    drop_stale,
    job_cost,
    keep_phrases,
    load_chunks,
    phrases_of,
    renew_lease,
    save_chunk,
    save_chunks,
)
from spool.tables import phrase_lists, workers
from spool.tables.batches import NewBatch
from tests.spool.formats.test_lattices import lattice


def asked(*phrases: str) -> dict[str, Any]:
    options = AskedOptions.model_validate({"model": "demo-tdt", "boost": {"phrases": phrases}})
    assert options.boost is not None
    return {"options": options.job_options(), "phrases": options.boost.phrase_list}


def test_jobs_with_the_same_phrases_share_their_list(db: Database) -> None:
    first = queued(db, **asked("lamp", "fog horn"))
    second = queued(db, **asked("fog horn", "lamp"))
    with db.begin() as tx:
        new = NewBatch(project="default", name="b", source="manifest", reuse=True, request_hash="0" * 64)
        batch, _ = batches.create_batch(tx, new)
        lines = [
            replace(new_job(**asked("lamp", "fog horn")), batch_id=batch.id, batch_line=n, custom_id=str(n))
            for n in range(50)
        ]
        assert batches.add_jobs(tx, batch.id, lines) == 50
    with db.read() as tx:
        assert tx.scalar(select(func.count()).select_from(phrase_lists)) == 1
        assert first.options == second.options
        assert first.options.boost is not None
        assert phrases_of(tx, first.options.boost.sha256) == ("fog horn", "lamp")
        with pytest.raises(NotFound):
            phrases_of(tx, phrase_list(["other"]).sha256)


def test_a_list_that_is_there_is_not_written_again(db: Database) -> None:
    for _ in range(2):
        with db.begin() as tx:
            keep_phrases(tx, [phrase_list(["a"]), None, phrase_list(["b"]), phrase_list(["a"])])
    with db.read() as tx:
        assert tx.scalar(select(func.count()).select_from(phrase_lists)) == 2


def test_a_chunk_comes_back_with_all_that_was_noted(db: Database) -> None:
    worker = registered(db)
    claim = claimed(db, worker_id=worker)
    nbest = (NbestText(text="née", score=-1.25), NbestText(text="nee", score=-1.5))
    heard = replace(chunk(0).heard, nbest=nbest, lattice=lattice())
    told = replace(chunk(0), heard=heard, fingerprint="f" * 64, tail=((7, 400), (3, 9000)))
    with db.begin() as tx:
        save_chunk(tx, claim, told, bill(worker))
        save_chunk(tx, claim, chunk(1), bill(worker))
        assert load_chunks(tx, claim.job.id) == [replace(told, attempt=1), replace(chunk(1), attempt=1)]


def test_of_chunks_that_are_saved_together_those_that_are_there_are_billed_as_wasted(db: Database) -> None:
    worker = registered(db)
    claim = claimed(db, worker_id=worker)
    with db.begin() as tx:
        save_chunk(tx, claim, chunk(1, engine_ns=5), bill(worker, 5, 480_000))
    with db.begin() as tx:
        renew_lease(tx, claim, 60.0)
        decoded = [(chunk(n, engine_ns=n + 1), bill(worker, n + 1, 480_000)) for n in range(3)]
        save_chunks(tx, claim, decoded)
    with db.read() as tx:
        saved, lines = load_chunks(tx, claim.job.id), bill_of(tx, claim.job.id)
        cost = job_cost(tx, claim.job.id)
    assert [(each.span.index, each.heard.engine_ns) for each in saved] == [(0, 1), (1, 5), (2, 3)]
    assert [(line.wasted, line.engine_ns) for line in lines] == [(False, 9), (True, 2)]
    assert cost.audio_seconds == 90.0


def test_chunks_of_other_weights_go_and_their_time_is_wasted(db: Database) -> None:
    worker = registered(db)
    claim = claimed(db, worker_id=worker)
    with db.begin() as tx:
        save_chunk(tx, claim, replace(chunk(0), fingerprint="a" * 64), bill(worker, 11, 480_000))
        save_chunk(tx, claim, replace(chunk(0), fingerprint="a" * 64), bill(worker, 5))
        save_chunk(tx, claim, replace(chunk(1), fingerprint="a" * 64), bill(worker, 0, 480_000))
    let_lapse(db, claim.job.id)
    heir = claimed(db, claim.job.id, worker)
    with pytest.raises(LeaseLost), db.begin() as tx:
        drop_stale(tx, claim, "b" * 64)
    with db.begin() as tx:
        assert drop_stale(tx, heir, "a" * 64) == 0, "the same options and weights"
        assert drop_stale(tx, heir, "b" * 64) == 2
        assert drop_stale(tx, heir, "b" * 64) == 0
    with db.begin() as tx:
        save_chunk(tx, heir, replace(chunk(0), fingerprint="b" * 64), bill(worker, 7, 480_000))
        assert drop_stale(tx, heir, "b" * 64) == 0
    with db.read() as tx:
        assert [saved.attempt for saved in load_chunks(tx, claim.job.id)] == [2]
        cost, lines = job_cost(tx, claim.job.id), bill_of(tx, claim.job.id)
        busy = tx.scalar(select(workers.c.busy_ns).where(workers.c.id == worker))
    assert [(line.attempt, line.wasted, line.engine_ns) for line in lines] == [
        (1, True, 16),
        (2, False, 7),
    ]
    assert cost.audio_seconds == 30.0
    assert busy == 23


def test_a_chunk_that_nobody_noted_the_weights_of_is_decoded_again(db: Database) -> None:
    worker = registered(db)
    claim = claimed(db, worker_id=worker)
    with db.begin() as tx:
        save_chunk(tx, claim, chunk(0), bill(worker))
        assert drop_stale(tx, claim, new_id("job")) == 1
        assert load_chunks(tx, claim.job.id) == []
