"""Workers without their share fail no job: the jobs wait, and the worker and the API say for what."""

import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from ops.testbed.mounts import OWN_MOUNTS, can_unmount, without_share
from ops.testbed.stack import HEADERS, Stack, until
from spool.domain import JobState
from spool.store import JobFilter, cancel_job, list_jobs, retry_job

pytestmark = pytest.mark.long

JOBS = 30


@pytest.fixture
def share(embedded: Stack, tmp_path: Path) -> Iterator[Path]:
    """A source root of the stack, with recordings."""
    share = tmp_path / "share"
    folder = share / "reel 1"
    folder.mkdir(parents=True)
    roots, recordings = embedded.environment["SPOOL_SOURCE_ROOTS"], embedded.recordings
    embedded.environment["SPOOL_SOURCE_ROOTS"] = str(share)
    embedded.recordings = folder
    for _ in range(JOBS):
        embedded.record(5)
    yield share
    embedded.stop_workers()
    with embedded.db.begin() as tx:  # of a test that failed
        for job in list_jobs(tx, JobFilter(state=JobState.QUEUED), limit=1000).items:
            cancel_job(tx, job.id)
    embedded.prefix = ()
    embedded.environment["SPOOL_SOURCE_ROOTS"], embedded.recordings = roots, recordings


def submit_all(stack: Stack) -> list[str]:
    return stack.submit_together(sorted(stack.recordings.glob("*.wav")))


def waiting_for(stack: Stack, job_id: str) -> str:
    """What the API says that the job waits for."""
    answer = httpx.get(f"{stack.serve()}/v1/jobs/{job_id}", headers=HEADERS, trust_env=False, timeout=60)
    return str(answer.raise_for_status().json()["waiting_for"])


def assert_none_ended(stack: Stack, jobs: list[str]) -> None:
    states = {stack.job(job_id).state for job_id in jobs}
    assert states <= {JobState.QUEUED, JobState.RUNNING}, states


@pytest.mark.skipif(not can_unmount(), reason="only root on Linux can give a process its own mounts")
def test_jobs_wait_for_a_share_that_is_not_mounted(embedded: Stack, share: Path) -> None:
    embedded.prefix = OWN_MOUNTS
    worker = embedded.worker()
    with embedded.fault("a worker loses its share, and 30 `file://` jobs come") as fault:
        with without_share(worker.pid, share):
            fault.jobs = submit_all(embedded)
            until(lambda: embedded.worker_row(worker).state == "unwell", "the worker takes itself out")
            until(lambda: "is unwell" in waiting_for(embedded, fault.jobs[0]), "the API says so")
            for said in (embedded.worker_row(worker).reason or "", waiting_for(embedded, fault.jobs[-1])):
                assert f"the source root {share} is empty" in said
            first_try = {job_id: embedded.job(job_id).attempt for job_id in fault.jobs}
            time.sleep(3)  # several looks of the worker, none of which helps
            assert embedded.worker_row(worker).state == "unwell"
            assert {job_id: embedded.job(job_id).attempt for job_id in fault.jobs} == first_try
            assert_none_ended(embedded, fault.jobs)
        fault.injected = time.monotonic()
        fault.note = "counted from when the share was back"
    embedded.assert_done(fault.jobs)
    until(lambda: embedded.worker_row(worker).state == "ready", "it is well again")
    assert {embedded.job(job_id).crashes for job_id in fault.jobs} == {0}
    assert worker.poll() is None


@pytest.mark.skipif(not can_unmount(), reason="only root on Linux can give a process its own mounts")
def test_a_share_that_goes_while_it_is_read_fails_no_job(embedded: Stack, share: Path) -> None:
    embedded.prefix = OWN_MOUNTS
    worker = embedded.worker()
    with embedded.fault("a worker loses its share while 30 `file://` jobs run") as fault:
        fault.jobs = submit_all(embedded)
        until(lambda: embedded.job(fault.jobs[0]).attempt == 1, "the first has begun")
        with without_share(worker.pid, share):
            until(
                lambda: embedded.ended(fault.jobs) or embedded.worker_row(worker).state == "unwell",
                "the worker takes itself out",
            )
        fault.injected = time.monotonic()
        fault.note = "counted from when the share was back"
    embedded.assert_done(fault.jobs)


def test_jobs_wait_for_a_worker_whose_settings_name_their_folder(embedded: Stack, share: Path) -> None:
    elsewhere = share.parent / "elsewhere"
    elsewhere.mkdir()
    worker = embedded.worker("foreign", SPOOL_SOURCE_ROOTS=str(elsewhere))
    with embedded.fault("30 `file://` jobs and a worker with another SPOOL_SOURCE_ROOTS") as fault:
        fault.jobs = submit_all(embedded)
        until(lambda: embedded.worker_row(worker).state == "unwell", "the worker takes itself out")
        until(lambda: "SPOOL_SOURCE_ROOTS" in waiting_for(embedded, fault.jobs[0]), "the API says so")
        assert "SPOOL_SOURCE_ROOTS" in (embedded.worker_row(worker).reason or "")
        assert_none_ended(embedded, fault.jobs)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
        embedded.worker("foreign")
        fault.injected = time.monotonic()
        fault.note = "counted from its start with the right folder"
    embedded.assert_done(fault.jobs)


def test_a_worker_is_well_again_when_nobody_waits_for_the_share(embedded: Stack, share: Path) -> None:
    worker = embedded.worker("foreign", SPOOL_SOURCE_ROOTS=str(share.parent / "nowhere"))
    (job_id,) = embedded.submit_together(sorted(embedded.recordings.glob("*.wav"))[:1])
    until(lambda: embedded.worker_row(worker).state == "unwell", "the worker takes itself out")
    url = f"{embedded.serve()}/v1/jobs/{job_id}"
    httpx.delete(url, headers=HEADERS, trust_env=False, timeout=60).raise_for_status()
    until(lambda: embedded.worker_row(worker).state == "ready", "it is well again")


def test_only_a_file_that_its_folder_lacks_fails(embedded: Stack, share: Path) -> None:
    worker = embedded.worker()
    (share / "reel 2").mkdir()
    gone = embedded.submit(share / "reel 1" / "deleted.wav")
    deleted_folder = embedded.submit(share / "reel 3" / "a.wav")
    empty_folder = embedded.submit(share / "reel 2" / "a.wav")
    with embedded.fault("a deleted file, beside folders that are missing or empty") as fault:
        fault.jobs = [gone, *submit_all(embedded)]
    embedded.assert_done(fault.jobs[1:])
    job = embedded.job(gone)
    assert (job.state, job.error_code, job.attempt) == (JobState.FAILED, "source_missing", 2)
    assert embedded.worker_row(worker).state == "ready", "one deleted folder stops no other job"
    for job_id, word in ((deleted_folder, "cannot be read here"), (empty_folder, "is empty here")):
        until(partial(lambda one: embedded.job(one).attempt > 2, job_id), "it is tried again")
        job = embedded.job(job_id)
        assert not job.state.terminal
        until(partial(lambda one: embedded.job(one).error_code, job_id), "it says why it waits")
        assert word in (embedded.job(job_id).error_message or "")
    found = embedded.record(5)
    for job_id, folder in ((deleted_folder, "reel 3"), (empty_folder, "reel 2"), (gone, "reel 1")):
        (share / folder).mkdir(exist_ok=True)
        name = "deleted.wav" if job_id == gone else "a.wav"
        (share / folder / name).write_bytes(found.read_bytes())
    with embedded.db.begin() as tx:
        retry_job(tx, gone)
    until(lambda: embedded.ended([deleted_folder, empty_folder, gone]), "all jobs ended")
    embedded.assert_done([deleted_folder, empty_folder, gone])
