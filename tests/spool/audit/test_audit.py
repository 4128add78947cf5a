"""The audit: silent on a healthy store, and it finds each kind of breach, on SQLite and on PostgreSQL."""

import hashlib
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import ColumnElement, Connection, Executable, delete, insert, select, update

from ops.testbed.rows import bill, chunk, claimed, let_lapse, queued, registered
from ops.testbed.running_api import transcript_of
from spool.audit import PAGE, RULES, AuditReport, Grace, audit
from spool.domain import Content, JobOptions, JobState, Source, passages_of
from spool.formats import STORED, render
from spool.ids import new_id
from spool.objects import FolderStore
from spool.store import (
    Database,
    Outcome,
    cancel_job,
    due_hints,
    fail_job,
    finish_job,
    heartbeat,
    mark_deleted,
    mark_sent,
    now_utc,
    save_chunk,
    seconds_from_now,
    stop_worker,
    try_lock,
    write_charge,
)
from spool.tables import chunks, cost_lines, jobs, locks, outbox, passage_words, passages, workers

LONG_AGO = -3600.0


class Scene:
    """A store in which every law holds: jobs in each state, money, files."""

    def __init__(self, db: Database, folder: Path) -> None:
        self.db = db
        self.objects = FolderStore(folder)
        self.worker = registered(db)
        self.done = self.finished(channels=1)
        self.stereo = self.finished(channels=2)
        self.queued = queued(db).id
        self.running = claimed(db, worker_id=self.worker).job.id
        failed = claimed(db, worker_id=self.worker)
        self.cancelled = queued(db).id
        with db.begin() as tx:
            fail_job(tx, failed, "audio_unreadable", "no audio")
            cancel_job(tx, self.cancelled)
            write_charge(tx, failed.job.id, 1, bill(self.worker, 7), wasted=True)
            tx.execute(update(workers).values(started_at=seconds_from_now(-600)))
        self.failed = failed.job.id

    def finished(self, channels: int, count: int = 3) -> str:
        options = JobOptions(model="demo-tdt", channels="separate" if channels > 1 else "mix")
        job_id = queued(self.db, options=options).id
        claim = claimed(self.db, job_id, self.worker)
        transcript = transcript_of(job_id, ("keep", "the", "light"))
        audio = transcript.audio.model_copy(update={"channels": channels})
        transcript = transcript.model_copy(update={"audio": audio})
        record = render(transcript, "json").encode()
        for form in STORED:
            key = f"jobs/{job_id}/attempt-1/transcript.{form}"
            self.objects.put_bytes(key, render(transcript, form).encode())
        key = f"jobs/{job_id}/attempt-1/transcript.json"
        digest = hashlib.sha256(record).hexdigest()
        with self.db.begin() as tx:
            for channel in range(channels):
                for index in range(count):
                    save_chunk(
                        tx, claim, chunk(index, channel, 1000 + index), bill(self.worker, 1000 + index)
                    )
            outcome = Outcome(30.0 * count, key, digest, 1.0, len(transcript.words))
            finish_job(tx, claim, outcome, passages_of(transcript))
        return job_id

    def do(self, *statements: Executable) -> None:
        with self.db.begin() as tx:
            for statement in statements:
                tx.execute(statement)

    def audit(self, **patience: float) -> AuditReport:
        return audit(self.db, self.objects, Grace(**patience))

    def breached(self, **patience: float) -> dict[str, set[str]]:
        """Subjects by rule."""
        report = self.audit(**patience)
        found: dict[str, set[str]] = {}
        for breach in report.breaches:
            found.setdefault(breach.rule, set()).add(breach.subject)
        assert set(found) == set(report.counts)
        assert set(found) <= set(RULES)
        assert report.clean == (not found)
        return found


@pytest.fixture
def scene(db: Database, tmp_path: Path) -> Scene:
    return Scene(db, tmp_path / "objects")


def test_a_healthy_store_is_clean(scene: Scene) -> None:
    report = scene.audit()
    assert report.breaches == []
    assert report.clean
    assert (report.jobs, report.chunks, report.workers) == (6, 9, 1)
    assert (report.lines, report.objects, report.leftovers) == (3, 2 * len(STORED), 0)


def test_an_empty_store_is_clean(db: Database, tmp_path: Path) -> None:
    report = audit(db, FolderStore(tmp_path))
    assert (report.clean, report.jobs) == (True, 0)


def test_without_the_object_store_sql_alone_is_judged(scene: Scene) -> None:
    scene.objects.delete(f"jobs/{scene.done}/attempt-1/transcript.json")
    assert audit(scene.db, None).clean


def test_more_jobs_than_a_page_holds_are_all_judged(scene: Scene) -> None:
    made = [queued(scene.db).id for _ in range(PAGE + 5)]
    scene.do(delete(chunks).where(chunks.c.job_id == scene.done))
    scene.do(update(jobs).where(jobs.c.id == made[-1]).values(state="failed"))
    assert scene.audit().jobs == 6 + PAGE + 5
    assert scene.breached()["ended"] == {made[-1]}


# --- owned or due -------------------------------------------------------------------------------------------


def test_a_lapsed_lease_is_due_for_a_sweep_and_later_a_breach(scene: Scene) -> None:
    let_lapse(scene.db, scene.running)
    assert scene.breached() == {}
    scene.do(update(jobs).where(jobs.c.id == scene.running).values(lease_until=seconds_from_now(LONG_AGO)))
    assert scene.breached() == {"owned": {scene.running}}
    assert scene.breached(grace_seconds=2 * -LONG_AGO) == {}


def forgotten(tx: Connection, job_id: str) -> None:
    tx.execute(delete(outbox).where(outbox.c.job_id == job_id))
    tx.execute(update(jobs).where(jobs.c.id == job_id).values(queued_at=seconds_from_now(LONG_AGO)))


def test_a_queued_job_needs_an_outbox_line_a_recent_hint_or_a_sweeper(scene: Scene) -> None:
    with scene.db.begin() as tx:
        forgotten(tx, scene.queued)
    assert scene.breached() == {"owned": {scene.queued}}
    with scene.db.begin() as tx:
        assert try_lock(tx, "sweep", "swp_a", 15.0)
    assert scene.breached() == {}, "the next sweep sends it"
    scene.do(update(locks).values(held_until=seconds_from_now(LONG_AGO)))
    assert scene.breached() == {"owned": {scene.queued}}
    scene.do(update(jobs).where(jobs.c.id == scene.queued).values(hinted_at=now_utc()))
    assert scene.breached() == {}, "a message was just sent"


def test_on_a_stopped_stack_jobs_wait_and_nothing_is_breached(scene: Scene) -> None:
    with scene.db.begin() as tx:
        forgotten(tx, scene.queued)
    scene.do(update(jobs).where(jobs.c.id == scene.running).values(lease_until=seconds_from_now(LONG_AGO)))
    assert scene.breached() == {"owned": {scene.queued, scene.running}}, "the worker runs"
    scene.do(update(workers).values(seen_at=seconds_from_now(-120)))
    report = scene.audit()
    assert (report.clean, report.stopped) == (True, 2)
    with scene.db.begin() as tx:
        assert try_lock(tx, "sweep", "swp_a", 15.0)
    assert scene.breached() == {"owned": {scene.running}}, (
        "an API process runs, and should have taken it back"
    )


def test_a_sent_hint_is_recent_only_for_a_while(scene: Scene) -> None:
    with scene.db.begin() as tx:
        mark_sent(tx, due_hints(tx, 100))
    assert scene.breached() == {}
    scene.do(update(jobs).where(jobs.c.id == scene.queued).values(hinted_at=seconds_from_now(LONG_AGO)))
    assert scene.breached() == {"owned": {scene.queued}}


@pytest.mark.parametrize(
    "values",
    [{"transcript_key": None}, {"transcript_sha256": None}, {"coverage": 0.99}, {"finished_at": None}],
)
def test_done_says_how(scene: Scene, values: dict[str, object]) -> None:
    scene.do(update(jobs).where(jobs.c.id == scene.done).values(values))
    assert scene.breached()["ended"] == {scene.done}


def test_failed_says_why(scene: Scene) -> None:
    scene.do(update(jobs).where(jobs.c.id == scene.failed).values(error_code=None))
    assert scene.breached() == {"ended": {scene.failed}}


# --- chunks and coverage ------------------------------------------------------------------------------------


def which(scene: Scene, number: int, channel: int = 0, job_id: str | None = None) -> ColumnElement[bool]:
    return (
        (chunks.c.job_id == (job_id or scene.done))
        & (chunks.c.number == number)
        & (chunks.c.channel == channel)
    )


def test_a_lost_chunk_is_a_gap(scene: Scene) -> None:
    for number in (0, 1, 2):
        job_id = scene.finished(channels=1)
        scene.do(delete(chunks).where(which(scene, number, job_id=job_id)))
        found = scene.breached()
        assert job_id in found["covered"], number
        assert job_id in found["billed"], "billed and not there"


def test_a_core_one_sample_short_is_a_gap(scene: Scene) -> None:
    scene.do(update(chunks).where(which(scene, 1)).values(core_end=chunks.c.core_end - 1))
    assert scene.breached()["covered"] == {scene.done}


def test_a_core_one_sample_long_overlaps(scene: Scene) -> None:
    scene.do(update(chunks).where(which(scene, 1)).values(core_end=chunks.c.core_end + 1))
    assert scene.breached()["chunks"] == {scene.done}


def test_a_recording_longer_than_its_chunks_is_a_gap(scene: Scene) -> None:
    scene.do(update(jobs).where(jobs.c.id == scene.done).values(audio_seconds=90.0 + 1 / 16_000))
    assert scene.breached() == {"covered": {scene.done}}


def test_a_channel_without_chunks_is_a_gap(scene: Scene) -> None:
    for channel in (0, 1):
        job_id = scene.finished(channels=2)
        scene.do(delete(chunks).where(chunks.c.job_id == job_id, chunks.c.channel == channel))
        assert job_id in scene.breached()["covered"], channel


def test_a_mixed_job_has_one_channel(scene: Scene) -> None:
    scene.do(update(jobs).where(jobs.c.id == scene.stereo).values(options={"model": "m", "channels": "mix"}))
    assert scene.breached() == {"covered": {scene.stereo}}


def test_a_done_job_without_chunks_is_not_covered(scene: Scene) -> None:
    scene.do(delete(chunks).where(chunks.c.job_id == scene.done))
    assert scene.breached()["covered"] == {scene.done}


def test_chunks_of_a_running_job_may_have_holes_and_not_overlap(scene: Scene) -> None:
    claim = claimed(scene.db, worker_id=scene.worker)
    with scene.db.begin() as tx:
        for index in (0, 2):
            save_chunk(tx, claim, chunk(index), bill(scene.worker))
    assert scene.breached() == {}
    scene.do(
        update(chunks)
        .where(which(scene, 0, job_id=claim.job.id))
        .values(core_end=960_001, end_sample=960_001)
    )
    assert scene.breached() == {"chunks": {claim.job.id}, "billed": {claim.job.id}}


# --- money --------------------------------------------------------------------------------------------------


def test_a_chunk_billed_twice_is_found(scene: Scene) -> None:
    with scene.db.begin() as tx:
        write_charge(tx, scene.done, 1, bill(scene.worker, 1001))
    assert scene.breached() == {"billed": {scene.done}}


def test_a_lost_line_is_found_on_the_job_and_on_the_worker(scene: Scene) -> None:
    scene.do(delete(cost_lines).where(cost_lines.c.job_id == scene.done))
    assert scene.breached() == {"billed": {scene.done}, "busy": {scene.worker}}


def test_time_charged_without_a_line_is_found(scene: Scene) -> None:
    scene.do(update(workers).values(busy_ns=workers.c.busy_ns + 1))
    assert scene.breached() == {"busy": {scene.worker}}


def test_a_stopped_workers_engine_agrees_with_its_bills(scene: Scene) -> None:
    with scene.db.read() as tx:
        charged = tx.execute(select(workers.c.busy_ns)).scalar_one()
    with scene.db.begin() as tx:
        heartbeat(tx, scene.worker, "ready", charged + 5)
    assert scene.breached() == {}, "at work, an engine is ahead of its bills"
    with scene.db.begin() as tx:
        stop_worker(tx, scene.worker, charged + 5)
    assert scene.breached() == {"busy": {scene.worker}}
    with scene.db.begin() as tx:
        stop_worker(tx, scene.worker, charged)
    assert scene.breached() == {}


def test_what_a_dead_worker_had_not_billed_is_told_within_bounds(scene: Scene) -> None:
    second = 1_000_000_000
    with scene.db.begin() as tx:
        charged = tx.execute(select(workers.c.busy_ns)).scalar_one()
        heartbeat(tx, scene.worker, "ready", charged + 2 * second, unbilled_ns=3 * second)
    report = audit(scene.db, None, Grace(beat_seconds=10))
    assert (report.died, report.lost_least_ns, report.lost_most_ns) == (0, 0, 3 * second), "it lives"

    scene.do(update(workers).values(seen_at=seconds_from_now(-120)))
    report = audit(scene.db, None, Grace(beat_seconds=10))
    assert (report.died, report.lost_least_ns, report.lost_most_ns) == (1, 2 * second, 15 * second)
    assert report.clean, "a death is no breach"

    with scene.db.begin() as tx:
        stop_worker(tx, scene.worker, charged, unbilled_ns=second)
    report = audit(scene.db, None, Grace(beat_seconds=10))
    assert (report.died, report.lost_least_ns, report.lost_most_ns) == (0, 0, second)


def test_a_worker_is_not_billed_longer_than_it_was_up(scene: Scene) -> None:
    hours = 3600 * 1_000_000_000
    with scene.db.begin() as tx:
        write_charge(tx, scene.failed, 1, bill(scene.worker, 2 * hours), wasted=True)
    assert scene.breached() == {"period": {scene.worker}}
    day = timedelta(days=1)
    with scene.db.begin() as tx:
        now = tx.execute(select(now_utc())).scalar_one()
        tx.execute(update(workers).values(started_at=now - day, seen_at=now))
    assert scene.breached() == {}
    scene.do(update(cost_lines).values(day=(now - 2 * day).date()))
    assert scene.breached() == {"period": {scene.worker}}, "billed before it began"


def test_a_worker_that_died_after_its_last_bill_was_up_until_then(scene: Scene) -> None:
    second = 1_000_000_000
    with scene.db.begin() as tx:
        write_charge(tx, scene.failed, 1, bill(scene.worker, 300 * second), wasted=True)
        heard = {"started_at": seconds_from_now(-400), "seen_at": seconds_from_now(-390)}
        tx.execute(update(workers).values(**heard))
    assert scene.breached() == {}, "it slept, wrote the bill, and died before its next heartbeat"
    scene.do(update(cost_lines).values(updated_at=seconds_from_now(-390)))
    assert scene.breached() == {"period": {scene.worker}}


def test_wasted_time_bills_no_audio(scene: Scene) -> None:
    scene.do(update(cost_lines).where(cost_lines.c.wasted).values(audio_samples=1))
    assert scene.breached() == {"wasted": {scene.failed}}


def test_a_lines_money_is_its_time_at_its_price(scene: Scene) -> None:
    scene.do(
        update(cost_lines)
        .where(cost_lines.c.job_id == scene.done)
        .values(cost_nanos=cost_lines.c.cost_nanos + 1)
    )
    assert scene.breached() == {"priced": {scene.done}}


# --- objects ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", STORED)
def test_a_lost_file_is_found(scene: Scene, form: str) -> None:
    scene.objects.delete(f"jobs/{scene.done}/attempt-1/transcript.{form}")
    assert scene.breached() == {"stored": {scene.done}}


@pytest.mark.parametrize("form", STORED)
def test_a_flipped_byte_is_found(scene: Scene, form: str) -> None:
    path = scene.objects.root / f"jobs/{scene.done}/attempt-1/transcript.{form}"
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    assert scene.breached() == {"stored": {scene.done}}


def test_an_upload_that_a_waiting_job_needs_is_there(scene: Scene) -> None:
    job_id = new_id("job")
    key = f"jobs/{job_id}/source"
    queued(scene.db, id=job_id, source=Source("upload", key))
    assert scene.breached() == {"source": {job_id}}
    scene.objects.put_bytes(key, b"RIFF")
    assert scene.breached() == {}


def test_an_upload_whose_job_failed_for_want_of_it_is_known_to_be_missing(scene: Scene) -> None:
    missing = {"source_kind": "upload", "source_uri": "jobs/job_0/source"}
    scene.do(update(jobs).where(jobs.c.id == scene.failed).values(**missing))
    assert scene.breached() == {"source": {scene.failed}}
    scene.do(update(jobs).where(jobs.c.id == scene.failed).values(error_code="source_missing"))
    assert scene.breached() == {}


def test_an_object_without_a_job_is_an_orphan_once_it_is_old(scene: Scene) -> None:
    key = f"jobs/{new_id('job')}/source"
    scene.objects.put_bytes(key, b"RIFF")
    report = scene.audit()
    assert (report.clean, report.arriving) == (True, 1), "its row may be on the way"
    assert scene.breached(upload_seconds=-60.0) == {"orphan": {key}}
    old = Grace(upload_seconds=-60.0)
    report = audit(scene.db, scene.objects, old, remove_orphans=True)
    assert (report.clean, report.removed) == (True, 1)
    assert scene.objects.head(key) is None
    assert scene.breached(upload_seconds=-60.0) == {}, "and nothing else was removed"


def test_files_of_an_attempt_that_does_not_count_are_no_breach(scene: Scene) -> None:
    scene.objects.put_bytes(f"jobs/{scene.done}/attempt-0/transcript.json", b"{}")
    report = scene.audit()
    assert (report.clean, report.leftovers) == (True, 1)


def test_breaches_are_counted_when_they_are_too_many_to_keep(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spool.audit.runner.KEPT", 2)
    scene.do(update(jobs).where(jobs.c.state == JobState.DONE.value).values(finished_at=None, coverage=0.5))
    report = scene.audit()
    assert (report.counts["ended"], len(report.breaches)) == (4, 2)


def test_the_audit_changes_nothing(scene: Scene) -> None:
    def everything() -> list[object]:
        with scene.db.read() as tx:
            return [tx.execute(select(table)).all() for table in (jobs, outbox, chunks, workers, cost_lines)]

    before = everything()
    scene.audit()
    assert everything() == before


def test_a_duplicate_chunk_is_refused_by_the_table_itself(scene: Scene) -> None:
    with scene.db.read() as tx:
        row = dict(tx.execute(select(chunks).where(which(scene, 1))).one()._mapping)
    with pytest.raises(Exception, match=r"(?i)unique"), scene.db.begin() as tx:
        tx.execute(insert(chunks).values(row))


# --- searchable ---------------------------------------------------------------------------------------------


def test_the_search_has_the_words_of_the_transcript_and_no_other(scene: Scene) -> None:
    own = passages.c.job_id == scene.done
    scene.do(update(passages).where(own).values(text="keep the lamp"))
    assert scene.breached() == {"searchable": {scene.done}}
    assert audit(scene.db, None).clean, "SQL alone counts words"
    scene.do(delete(passages).where(own))
    assert audit(scene.db, None).counts == {"searchable": 1}


def test_the_search_by_sound_has_the_words_of_the_transcript_and_no_other(scene: Scene) -> None:
    own = passage_words.c.job_id == scene.done
    scene.do(update(passage_words).where(own, passage_words.c.token == "keep").values(token="keeper"))
    assert scene.breached() == {"searchable": {scene.done}}
    scene.do(delete(passage_words).where(own))
    assert scene.breached() == {"searchable": {scene.done}}


def test_the_search_has_what_was_heard_beside_the_transcript_and_no_more(scene: Scene) -> None:
    own = passages.c.job_id == scene.done
    scene.do(update(passages).where(own).values(alternatives='[[1, 1, "a", 0.5]]'))
    assert scene.breached() == {"searchable": {scene.done}}


def test_the_search_keeps_nothing_of_a_deleted_transcript(scene: Scene) -> None:
    with scene.db.begin() as tx:
        kept = tx.execute(select(passages).where(passages.c.job_id == scene.done)).one()
        mark_deleted(tx, [scene.done], Content.TRANSCRIPT, "operator")
        fields = dict(kept._mapping) | {"terms": ["keep", "the", "light"]}
        tx.execute(insert(passages).values(**fields))
    assert audit(scene.db, None).counts == {"searchable": 1}
    scene.do(delete(passages).where(passages.c.job_id == scene.done))
    assert audit(scene.db, None).clean
    left = {"project": "default", "sound": "kp", "token": "keep", "job_id": scene.done}
    scene.do(insert(passage_words).values(**left))
    assert audit(scene.db, None).counts == {"searchable": 1}
