"""Deletion is complete, logged and proved: on SQLite and PostgreSQL, in a folder and on an S3 server."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from pydantic import SecretStr
from sqlalchemy import ColumnElement, FromClause, func, insert, select, update

from ops.testbed.rows import claimed, new_job, queued
from ops.testbed.s3 import S3Server
from spool.audit import AuditReport, Grace, audit
from spool.background import delete_content, delete_once
from spool.domain import AskedOptions, Content, JobState, Retention, Source
from spool.errors import Deleted, StorageError
from spool.ids import new_id
from spool.objects import FolderStore, ObjectStore, S3Options, S3Store
from spool.settings import Settings
from spool.store import (
    OVERDUE_SECONDS,
    Database,
    create_job,
    deletions_of,
    fail_job,
    find_by_content,
    get_job,
    retry_job,
    seconds_from_now,
    try_lock,
)
from spool.tables import chunk_sums, chunks, deletions, jobs, passage_words, passages, phrase_lists
from tests.spool.audit.test_audit import Scene

BOTH = list(Content)
MONTH = timedelta(days=30)


@pytest.fixture
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """A folder; where a test says so, a bucket."""
    if getattr(request, "param", "folder") == "folder":
        return FolderStore(tmp_path / "objects")
    server: S3Server = request.getfixturevalue("s3_server")
    bucket = new_id("gone").lower().replace("_", "-")
    server.client().create_bucket(Bucket=bucket)
    keys = (SecretStr(server.access_key), SecretStr(server.secret_key))
    return S3Store(bucket, "", S3Options(server.endpoint, server.region, *keys))


everywhere = pytest.mark.parametrize("objects", ["folder", "s3"], indirect=True)


class Archive(Scene):
    """The audit's healthy store, with an upload, and with phrases, in any object store."""

    def __init__(self, db: Database, objects: ObjectStore, folder: Path, settings: Settings) -> None:
        super().__init__(db, folder / "scene")
        self.settings = settings
        for item in list(self.objects.list("jobs/")):
            with self.objects.open(item.key) as stream:
                objects.put_bytes(item.key, stream.read())
        self.objects = cast("FolderStore", objects)  # or S3: nothing here needs a folder
        with db.begin() as tx:
            tx.execute(
                update(jobs)
                .where(jobs.c.id == self.done)
                .values(
                    source_kind="upload",
                    source_uri=f"jobs/{self.done}/source",
                    content_sha256="c" * 64,
                    fingerprint="f" * 64,
                )
            )
        objects.put_bytes(f"jobs/{self.done}/source", b"RIFF")

    def audit(self, **patience: float) -> AuditReport:
        return audit(self.db, self.objects, Grace(**patience), retention=self.settings.retention)

    def keys(self, job_id: str) -> list[str]:
        return [item.key for item in self.objects.list(f"jobs/{job_id}/")]

    def age(self, job_id: str, days: float) -> None:
        ended = seconds_from_now(-days * 86_400)
        self.do(update(jobs).where(jobs.c.id == job_id).values(finished_at=ended))

    def sweep(self, **rules: Retention) -> int | None:
        self.settings = self.settings.model_copy(update={"retention": rules})
        return delete_once(self.db, self.objects, self.settings, "dlr_test")

    def count(self, table: FromClause, *where: ColumnElement[bool]) -> int:
        with self.db.read() as tx:
            return tx.scalar(select(func.count()).select_from(table).where(*where)) or 0


@pytest.fixture
def archive(
    db: Database, objects: ObjectStore, tmp_path: Path, make_settings: Callable[..., Settings]
) -> Archive:
    return Archive(db, objects, tmp_path, make_settings(retention={}))


@everywhere
def test_what_is_deleted_is_gone_everywhere_and_the_bill_stays(archive: Archive) -> None:
    job_id = archive.done
    archive.objects.put_bytes(f"jobs/{job_id}/attempt-7/transcript.txt", b"of a worker that lost its lease")
    assert archive.audit().clean

    assert delete_content(archive.db, archive.objects, [job_id], BOTH, "key_1")

    with archive.db.read() as tx:
        job, lines = get_job(tx, job_id), deletions_of(tx, [job_id])
        assert find_by_content(tx, "default", "c" * 64, "f" * 64) is None
    assert archive.keys(job_id) == []
    assert archive.count(chunks, chunks.c.job_id == job_id) == 0
    assert archive.count(passages, passages.c.job_id == job_id) == 0
    assert archive.count(passage_words, passage_words.c.job_id == job_id) == 0
    assert (job.state, job.words, job.audio_seconds) == (JobState.DONE, 3, 90.0)
    assert (job.transcript_key, job.transcript_sha256, job.content_sha256, job.fingerprint) == (None,) * 4
    assert job.source_deleted_at is not None
    assert job.transcript_deleted_at is not None
    assert [(line.content, line.asked_by, line.objects) for line in lines] == [
        (Content.SOURCE, "key_1", 1),
        (Content.TRANSCRIPT, "key_1", 5),
    ]
    assert all(line.done_at for line in lines)
    assert archive.count(chunk_sums, chunk_sums.c.job_id == job_id) == 1
    report = archive.audit()
    assert report.clean, report.breaches
    assert len(archive.keys(archive.stereo)) == 4, "nobody else's"

    # And once more is nothing
    assert delete_content(archive.db, archive.objects, [job_id], BOTH, "key_2")
    assert archive.count(deletions) == 2


def test_a_transcript_alone_or_a_recording_alone(archive: Archive) -> None:
    delete_content(archive.db, archive.objects, [archive.done], [Content.TRANSCRIPT], "operator")
    assert archive.keys(archive.done) == [f"jobs/{archive.done}/source"]
    delete_content(archive.db, archive.objects, [archive.done], [Content.SOURCE], "operator")
    # A recording that lies elsewhere is not ours to delete.
    delete_content(archive.db, archive.objects, [archive.stereo], [Content.SOURCE], "operator")
    assert len(archive.keys(archive.stereo)) == 4
    assert archive.count(deletions) == 2
    assert archive.audit().clean


def test_what_runs_or_waits_is_never_touched(archive: Archive) -> None:
    ids = [archive.running, archive.queued]
    delete_content(archive.db, archive.objects, ids, BOTH, "operator")
    archive.age(archive.running, 99)
    archive.sweep(default=Retention(source=MONTH, transcript=MONTH))
    assert archive.count(deletions) == 0


def test_a_failed_job_without_its_words_is_not_tried_again(archive: Archive) -> None:
    delete_content(archive.db, archive.objects, [archive.failed], BOTH, "operator")
    with pytest.raises(Deleted, match="transcript of job"), archive.db.begin() as tx:
        retry_job(tx, archive.failed)
    assert archive.audit().clean


def test_phrases_go_with_the_last_job_that_names_them(archive: Archive) -> None:
    asked = AskedOptions.model_validate({"model": "demo-tdt", "boost": {"phrases": ["Heligoland"]}})
    ids = []
    for _ in range(2):
        with archive.db.begin() as tx:
            new = replace(new_job(options=asked.job_options()), phrases=asked.phrases)
            ids.append(create_job(tx, new)[0].id)
        claim = claimed(archive.db, ids[-1])
        with archive.db.begin() as tx:
            fail_job(tx, claim, "audio_empty", "nothing in it")
    assert archive.count(phrase_lists) == 1
    delete_content(archive.db, archive.objects, ids[:1], BOTH, "operator")
    assert archive.count(phrase_lists) == 1
    delete_content(archive.db, archive.objects, ids[1:], BOTH, "operator")
    assert archive.count(phrase_lists) == 0
    assert archive.audit().clean


@everywhere
def test_a_sweep_deletes_what_has_been_kept_long_enough(archive: Archive) -> None:
    archive.age(archive.done, 31)
    archive.age(archive.stereo, 29)
    assert archive.sweep(court=Retention(source=MONTH, transcript=MONTH)) == 0
    assert archive.sweep(default=Retention(source=MONTH)) == 1
    assert len(archive.keys(archive.done)) == 4
    assert archive.sweep(**{"*": Retention(transcript=MONTH)}) == 1
    assert archive.keys(archive.done) == []
    assert len(archive.keys(archive.stereo)) == 4
    assert archive.sweep(**{"*": Retention(transcript=MONTH)}) == 0
    assert archive.sweep(**{"*": Retention(transcript=MONTH), "default": Retention()}) == 0
    with archive.db.read() as tx:
        assert {line.asked_by for line in deletions_of(tx, [archive.done])} == {"retention"}
    assert archive.audit().clean


def test_only_one_process_sweeps(archive: Archive) -> None:
    with archive.db.begin() as tx:
        assert try_lock(tx, "deletions", "dlr_other", 60)
    assert archive.sweep() is None


def test_a_file_that_a_lost_worker_writes_later_goes_too(archive: Archive) -> None:
    delete_content(archive.db, archive.objects, [archive.done], BOTH, "operator")
    late = f"jobs/{archive.done}/attempt-1/transcript.txt"
    archive.objects.put_bytes(late, b"keep the light")
    assert archive.breached() == {"deleted": {late}}
    archive.do(update(deletions).values(due_at=seconds_from_now(-1)))
    assert archive.sweep() == 2
    assert archive.keys(archive.done) == []
    assert archive.count(deletions, deletions.c.due_at.is_not(None)) == 0
    assert archive.audit().clean


class Refusing(FolderStore):
    def delete(self, key: str) -> None:
        if key.endswith(".txt"):
            raise StorageError("The object store does not answer.")
        super().delete(key)


def test_what_the_object_store_refuses_is_done_later_and_holds_nobody_up(
    archive: Archive, tmp_path: Path
) -> None:
    refusing = Refusing(tmp_path / "objects")
    ids = [archive.done, archive.stereo]
    assert not delete_content(archive.db, refusing, ids, BOTH, "operator")
    assert archive.breached() == {}, "it is on its way"
    archive.do(update(deletions).values(created_at=seconds_from_now(-OVERDUE_SECONDS - 61)))
    assert set(archive.breached()) == {"deleted"}
    archive.do(update(deletions).values(due_at=seconds_from_now(-1)))
    assert archive.sweep() == 3
    assert archive.breached() == {}
    assert archive.keys(archive.done) == archive.keys(archive.stereo) == []


@pytest.mark.integration
@pytest.mark.parametrize("point", ["delete.marked", "delete.emptied"])
def test_a_process_killed_in_between_leaves_what_the_next_one_finishes(
    archive: Archive, tmp_path: Path, point: str
) -> None:
    code = f"""
from pathlib import Path
from spool.background.content_deleter import delete_content
from spool.objects import FolderStore
from spool.domain.retention import Content
from spool.store import Database
db = Database({_url(archive.db)!r})
objects = FolderStore(Path({str(tmp_path / "objects")!r}))
delete_content(db, objects, [{archive.done!r}], list(Content), "key_1")
"""
    told = os.environ | {"SPOOL_FAILPOINTS": f"{point}=kill"}
    done = subprocess.run([sys.executable, "-c", code], env=told, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL

    # Nothing can be read any more, though not everything is gone
    with archive.db.read() as tx:
        assert get_job(tx, archive.done).transcript_deleted_at is not None
    assert bool(archive.keys(archive.done))
    assert archive.audit().clean, "it is on its way"

    assert archive.sweep() == 2
    assert archive.keys(archive.done) == []
    assert archive.audit().clean


def _url(db: Database) -> str:
    return db.engine.url.render_as_string(hide_password=False)


# What an audit finds


def test_the_audit_finds_what_is_there_and_should_not_be(archive: Archive) -> None:
    delete_content(archive.db, archive.objects, [archive.done], BOTH, "operator")
    gone = jobs.c.id == archive.done
    archive.do(update(jobs).where(gone).values(content_sha256="c" * 64))
    assert archive.breached() == {"deleted": {archive.done}}
    archive.do(update(jobs).where(gone).values(content_sha256=None))
    row = {"job_id": archive.done, "channel": 0, "number": 0, "core_start": 0, "core_end": 1, "attempt": 1}
    row |= {
        "start_sample": 0,
        "end_sample": 1,
        "words": [],
        "engine_ns": 0,
        "created_at": seconds_from_now(0),
    }
    archive.do(insert(chunks).values(**row))
    assert archive.done in archive.breached()["deleted"]
    archive.do(chunks.delete().where(chunks.c.job_id == archive.done), chunk_sums.delete())
    assert archive.breached() == {"billed": {archive.done}}, "the bill is still proved"


def test_the_audit_finds_what_no_log_explains(archive: Archive) -> None:
    delete_content(archive.db, archive.objects, [archive.done], BOTH, "operator")
    archive.do(deletions.delete())
    assert archive.breached() == {"deleted": {archive.done}}


def test_the_audit_finds_what_is_gone_and_should_not_be(archive: Archive) -> None:
    archive.objects.delete(f"jobs/{archive.done}/source")
    archive.objects.delete(f"jobs/{archive.stereo}/attempt-1/transcript.json")
    assert archive.breached() == {"source": {archive.done}, "stored": {archive.stereo}}


def test_the_audit_finds_what_is_kept_too_long(archive: Archive) -> None:
    archive.settings = archive.settings.model_copy(update={"retention": {"default": Retention(source=MONTH)}})
    archive.age(archive.done, 30)
    assert archive.audit().clean
    archive.age(archive.done, 31)
    assert archive.breached() == {"retained": {archive.done}}


def test_a_job_that_waits_is_none_of_retentions_business(archive: Archive) -> None:
    source = Source("upload", "jobs/job_x/source")
    waiting = queued(archive.db, source=source).id
    archive.sweep(**{"*": Retention(source=timedelta(seconds=0), transcript=timedelta(seconds=0))})
    with archive.db.read() as tx:
        job = get_job(tx, waiting)
    assert (job.state, job.source_deleted_at) == (JobState.QUEUED, None)
