"""An object store that refuses, stalls, breaks off and changes: jobs wait it out and decode nothing twice."""

import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import migrations
from ops.testbed.faulty_s3 import FaultyS3, Rule
from ops.testbed.postgres import PostgresServer
from ops.testbed.s3 import S3Server
from ops.testbed.stack import Stack, post_upload, until
from spool.broker import EmbeddedRedis
from spool.domain import JobState
from tests.faults.conftest import s3_settings

long = pytest.mark.long
DRAIN_SECONDS = 30


@dataclass
class Behind:
    stack: Stack
    proxy: FaultyS3


@pytest.fixture(scope="module")
def behind(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: PostgresServer,
    broker: EmbeddedRedis,
    s3_server: S3Server,
) -> Iterator[Behind]:
    """A stack whose object store is behind a proxy that breaks what it is told to break."""
    url = postgres.create_database("spool-behind")
    migrations.upgrade(url)
    home: Path = tmp_path_factory.mktemp("behind")
    with FaultyS3(s3_server.endpoint) as proxy:
        settings: dict[str, Any] = {
            **s3_settings(s3_server, "spool-behind"),
            "SPOOL_S3_ENDPOINT_URL": proxy.url,
        }
        stack = Stack(home, url, broker, **settings)
        yield Behind(stack, proxy)
        stack.close()


@pytest.fixture(autouse=True)
def _no_rules_left(behind: Behind) -> Iterator[None]:
    yield
    behind.proxy.rules.clear()


@long
def test_a_worker_drains_although_every_source_drips(behind: Behind) -> None:
    stack = behind.stack
    worker = stack.worker()
    dripping = Rule("GET", "/source", times=99, drip=0.5)
    behind.proxy.rules[:] = [dripping]
    number = stack.settings.concurrency
    jobs = [stack.submit_stored(stack.record(20)) for _ in range(number)]
    until(lambda: dripping.used >= number, "every slot of the worker waits for a body")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(DRAIN_SECONDS) == 0
    assert {stack.job(job_id).state for job_id in jobs} == {JobState.QUEUED}
    assert {stack.job(job_id).crashes for job_id in jobs} == {0}
    behind.proxy.rules.clear()
    stack.worker()
    until(lambda: stack.ended(jobs), "all jobs ended")
    stack.assert_done(jobs)


GET, PUT = "GET", "PUT"
PASSING = {
    "503 three times as the recording is fetched": Rule(GET, "/source", 3, 503),
    "503 beyond boto3's patience as the recording is fetched": Rule(GET, "/source", 7, 503),
    "409 as the transcript is stored": Rule(PUT, "transcript.srt", 2, 409),
    "503 as the record is stored, the last step": Rule(PUT, "transcript.json", 2, 503),
    "500 after the record was stored: the answer is lost": Rule(PUT, "transcript.json", 1, 500, unheard=True),
    "no space as the record is stored, the last step": Rule(PUT, "transcript.json", 2, 507),
    "no space beyond a lease as the record is stored": Rule(PUT, "transcript.json", 12, 507),
    "a body that breaks off twice": Rule(GET, "/source", 2, cut=100_000),
    "a body that breaks off at once": Rule(GET, "/source", 1, cut=0),
    "3 s of silence before the recording": Rule(GET, "/source", 1, delay=3.0),
    "3 s of silence before the transcript is taken": Rule(PUT, "transcript.json", 1, delay=3.0),
}
SLOW = {
    "3 s of silence before the recording",
    "no space as the record is stored, the last step",
    "503 beyond boto3's patience as the recording is fetched",
    "a body that breaks off at once",
    "409 as the transcript is stored",
    "500 after the record was stored: the answer is lost",
    "3 s of silence before the transcript is taken",
}


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=long) if what in SLOW else what for what in PASSING]
)
def test_a_store_that_comes_to_its_senses(behind: Behind, what: str) -> None:
    stack, rule = behind.stack, PASSING[what]
    stack.worker()
    recording = stack.record()
    with stack.fault(f"object store: {what}") as fault:
        stored = stack.submit_stored  # the upload itself is not what is tried here
        behind.proxy.rules.clear()
        fault.jobs = [stored(recording)]
        behind.proxy.rules.append(rule)
        until(lambda: rule.used, "the fault happened")
        fault.injected = time.monotonic()
    assert rule.used == rule.times, "all of the fault was met"
    stack.assert_done(fault.jobs)
    assert fault.repeated == 0
    assert stack.job(fault.jobs[0]).crashes == 0


@long
@pytest.mark.parametrize("status", [503, 507, 500])
def test_an_upload_that_cannot_be_stored_is_refused_and_asked_again(behind: Behind, status: int) -> None:
    stack = behind.stack
    stack.worker()
    url, recording, key = stack.serve(), stack.record(30), f"stored-{status}"
    with stack.fault(f"object store: {status} beyond boto3's patience as an upload is stored") as fault:
        rule = Rule(PUT, "/source", 100, status)
        behind.proxy.rules.append(rule)
        refused = post_upload(url, recording, key)
        assert refused.status_code == (507 if status == 507 else 503), refused.text
        assert rule.used
        behind.proxy.rules.clear()
        fault.injected = time.monotonic()
        fault.note = f"the upload was answered {refused.status_code}"
        fault.jobs = [stack.upload(recording, key)]
    stack.assert_done(fault.jobs)
    assert fault.repeated == 0


@pytest.mark.parametrize("status", [412, pytest.param(403, marks=long)])
def test_a_refusal_that_stays_fails_the_job_at_once(behind: Behind, status: int) -> None:
    stack = behind.stack
    stack.worker()
    recording = stack.record(30)
    with stack.fault(f"object store: {status} as the recording is fetched") as fault:
        behind.proxy.rules.append(Rule(GET, "/source", 1, status))
        fault.jobs = [stack.submit_stored(recording)]
    job = stack.job(fault.jobs[0])
    expected = "source_changed" if status == 412 else "source_forbidden"
    assert (job.state, job.error_code, job.attempt) == (JobState.FAILED, expected, 1)
    assert fault.decoded == 0


@long
def test_a_recording_that_changed_after_it_was_submitted(behind: Behind) -> None:
    stack = behind.stack
    recording, other = stack.record(30), stack.record(40)
    stack.stop_workers()
    with stack.fault("object store: another recording under the same key (its ETag changed)") as fault:
        fault.jobs = [stack.submit_stored(recording)]
        stack.objects.put_file(f"jobs/{fault.jobs[0]}/source", other)
        stack.worker()
    job = stack.job(fault.jobs[0])
    assert (job.state, job.error_code) == (JobState.FAILED, "source_changed")


@long
def test_a_recording_that_changes_as_it_is_read(behind: Behind) -> None:
    stack = behind.stack
    stack.worker()
    recording, other = stack.record(60), stack.record(61)
    with stack.fault("object store: the recording changes while it is read") as fault:
        # The first answer breaks off, and what is asked for next is no longer what it began with.
        behind.proxy.rules += [Rule(GET, "/source", 1, cut=100_000, delay=1.0)]
        fault.jobs = [stack.submit_stored(recording)]
        until(lambda: behind.proxy.rules[0].used, "the recording is asked for")
        behind.proxy.rules.append(Rule(GET, "/source", 1, delay=2.0))
        until(lambda: behind.proxy.rules[1].used, "the rest is asked for")
        stack.objects.put_file(f"jobs/{fault.jobs[0]}/source", other)
    job = stack.job(fault.jobs[0])
    assert (job.state, job.error_code) == (JobState.FAILED, "source_changed")


def test_at_the_end_bills_and_engines_agree(behind: Behind) -> None:
    behind.stack.stop_workers()
    report = behind.stack.audit()
    assert report.clean, report.breaches
