"""What docs/operations.md says of a lost bucket and of a lost database, done as it says."""

import subprocess
import time
from pathlib import Path

import pytest
from sqlalchemy import select

from ops.testbed.postgres import PostgresServer, find_binaries
from ops.testbed.stack import Stack, until
from spool.audit import Grace, audit
from spool.domain import JobState
from spool.tables import jobs

pytestmark = pytest.mark.long
AGED = Grace(grace_seconds=30.0, upload_seconds=-60.0)  # as if an hour had passed
DATABASE = "spool-test-restores"


def copied(stack: Stack, prefix: str = "") -> dict[str, bytes]:
    """All objects, as a bucket's copy would have them."""
    by_key = {}
    for item in stack.objects.list(prefix):
        with stack.objects.open(item.key) as stream:
            by_key[item.key] = stream.read()
    return by_key


def test_a_lost_bucket(stack: Stack) -> None:
    stack.worker()
    done = [stack.submit_stored(stack.record(30)) for _ in range(3)]
    until(lambda: stack.ended(done), "three done")
    stack.stop_workers()
    waiting = stack.submit_stored(stack.record(30))
    recording = stack.record(30)
    with stack.fault("every object of the bucket lost, then what was copied put back") as fault:
        kept = {key: data for key, data in copied(stack).items() if waiting not in key}
        for item in list(stack.objects.list()):
            stack.objects.delete(item.key)
        report = audit(stack.db, stack.objects, AGED)
        assert {breach.subject for breach in report.breaches if breach.rule == "stored"} == set(done)
        assert {breach.subject for breach in report.breaches if breach.rule == "source"} == {*done, waiting}
        fault.injected = time.monotonic()
        for key, data in kept.items():
            stack.objects.put_bytes(key, data)
        stack.worker()
        until(lambda: stack.ended([waiting]), "the job without its upload ended")
        fault.jobs = [*done, waiting, stack.submit_stored(recording)]
        fault.note = "the job whose upload was not in the copy failed, and was submitted again"
    assert {stack.job(job_id).state for job_id in done} == {JobState.DONE}
    lost = stack.job(waiting)
    assert (lost.state, lost.error_code) == (JobState.FAILED, "source_missing")
    stack.assert_done(fault.jobs[4:])


def test_a_lost_database(stack: Stack, postgres: PostgresServer, tmp_path: Path) -> None:
    stack.worker()
    before = [stack.submit_stored(stack.record(30)) for _ in range(2)]
    until(lambda: stack.ended(before), "two done")
    stack.stop_workers()
    before.append(stack.submit_stored(stack.record(30)))  # waits while the dump is taken
    where = ["-h", str(postgres.folder), "-U", "spool"]
    dump = tmp_path / "dump"
    asked = [find_binaries() / "pg_dump", *where, "-Fc", "-f", dump, DATABASE]
    subprocess.run(list(map(str, asked)), check=True)
    stack.worker()
    after = stack.submit_stored(stack.record(30))
    until(lambda: stack.ended([*before, after]), "all done before the loss")
    stack.stop_workers()
    with stack.fault(
        "the database lost, and restored from a dump of before the last two jobs ended"
    ) as fault:
        stack.db.engine.dispose()
        postgres.create_database(DATABASE)  # drops the old one
        asked = [find_binaries() / "pg_restore", *where, "-d", DATABASE, dump]
        subprocess.run(list(map(str, asked)), check=True)
        fault.injected = time.monotonic()
        report = audit(stack.db, stack.objects, AGED)
        forgotten = {breach.subject.split("/")[1] for breach in report.breaches if breach.rule == "orphan"}
        assert forgotten == {after}, "its transcript is still there to be read"
        stack.worker()
        fault.jobs = before
        fault.note = "the job that was not in the dump is told by the audit as `orphan`, with its transcript"
    stack.assert_done(before)
    with stack.db.read() as tx:
        assert after not in set(tx.scalars(select(jobs.c.id)))
    assert audit(stack.db, stack.objects, AGED, remove_orphans=True).clean
    assert audit(stack.db, stack.objects, AGED).clean
    stack.stop_workers()
    assert stack.audit().clean
