"""Full disks under everything that writes: jobs and uploads wait until there is room, and nothing is lost."""

import os
import pwd
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import migrations
from ops.testbed.postgres import PostgresServer
from ops.testbed.s3 import S3Server
from ops.testbed.stack import Stack, in_the_middle, post_upload, until
from spool.broker import EmbeddedRedis
from tests.faults.conftest import s3_settings
from tests.faults.small_disk import SmallDisk, can_mount, small_disk

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not can_mount(), reason="a small disk can be mounted by root on Linux alone"),
]


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    # Not below pytest's folder, which is closed to PostgreSQL's user.
    with tempfile.TemporaryDirectory(prefix="spool-disk-") as folder:
        Path(folder).chmod(0o755)
        with small_disk(Path(folder) / "disk", 64) as mounted:
            yield mounted


def test_the_one_disk_of_a_machine(
    disk: SmallDisk, tmp_path: Path, sqlite_url: str, broker: EmbeddedRedis
) -> None:
    home = disk.path / "home"
    home.mkdir()
    shutil.copy(sqlite_url.removeprefix("sqlite:///"), home / "spool.db")
    stack = Stack(home, f"sqlite:///{home / 'spool.db'}", broker, recordings=tmp_path)
    stack.decoded_list = tmp_path / "decoded"  # what is measured must not fail with what is tried
    stack.decoded_list.touch()
    stack.environment["SPOOL_TEST_DECODED"] = str(stack.decoded_list)
    stack.worker()
    url = stack.serve()
    late = stack.record(30)
    with stack.fault("no space for 5 s on a machine's one disk: SQLite, uploads, objects") as fault:
        fault.jobs = in_the_middle(stack, seconds=100)
        with disk.full(5):
            refused = post_upload(url, late, "late")
            assert refused.status_code in {503, 507}, refused.text
        fault.injected = time.monotonic()
        fault.note = f"counted from when there was room; an upload was answered {refused.status_code}"
        fault.jobs.append(stack.upload(late, key="late"))
    stack.assert_done(fault.jobs)
    assert not list((home / "uploads").iterdir()), "what was refused left nothing behind"
    stack.stop_workers()
    assert stack.audit().clean
    stack.close()


def test_postgresqls_disk(
    disk: SmallDisk, tmp_path: Path, postgres: PostgresServer, broker: EmbeddedRedis, s3_server: S3Server
) -> None:
    place = disk.path / "tablespace"
    place.mkdir()
    if postgres.user is not None:
        os.chown(place, pwd.getpwnam(postgres.user).pw_uid, -1)
    with postgres.admin() as admin:
        admin.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
        admin.execute('CREATE DATABASE "spool-small" TABLESPACE small')
    url = postgres.url("spool-small")
    migrations.upgrade(url)
    settings: dict[str, Any] = s3_settings(s3_server, "spool-small")
    stack = Stack(tmp_path / "home", url, broker, **settings)
    stack.worker()
    with stack.fault("no space for 5 s in PostgreSQL's tablespace") as fault:
        fault.jobs = in_the_middle(stack)
        with postgres.connect("spool-small") as other:
            other.execute("CREATE TABLE ballast (text text)")
            with disk.full(5), pytest.raises(psycopg.errors.DiskFull):
                other.execute("INSERT INTO ballast SELECT repeat('x', 100) FROM generate_series(1, 100000)")
            fault.injected = time.monotonic()
            fault.note = "counted from when there was room"
    stack.assert_done(fault.jobs)
    stack.stop_workers()
    assert stack.audit().clean
    stack.close()
    with postgres.admin() as admin:
        admin.execute('DROP DATABASE "spool-small" WITH (FORCE)')
        admin.execute("DROP TABLESPACE small")


def test_a_workers_own_disk(disk: SmallDisk, stack: Stack) -> None:
    recordings = [stack.record(60) for _ in range(2)]
    worker = stack.worker("gamma", SPOOL_HOME=str(disk.path))
    with stack.fault("no space where a worker keeps what it fetches") as fault:
        disk.fill()
        fault.jobs = [stack.submit_stored(recording) for recording in recordings]
        until(lambda: stack.worker_row(worker).state == "unwell", "the worker takes itself out of service")
        assert not stack.ended(fault.jobs), "no job fails for it"
        disk.free()
        fault.injected = time.monotonic()
        fault.note = "counted from when there was room"
    stack.assert_done(fault.jobs)
    assert {stack.job(job_id).crashes for job_id in fault.jobs} == {0}
    assert worker.poll() is None
    stack.stop_workers()
    assert stack.audit().clean
