"""Servers that send a byte now and then: the job ends when it is to end, and so does its worker (law 10)."""

import signal
from pathlib import Path

import pytest

from ops.testbed.stack import Stack, until
from ops.testbed.waiting import until as until_within
from spool.domain import JobOptions, JobState, Source
from spool.store import NewJob, cancel_job, create_job
from tests.worker.sources.drip import HEADERS, DripServer

DRAIN_SECONDS = 30
CANCEL_SECONDS = 5.0


def submit(stack: Stack, server: DripServer, name: str) -> str:
    source = Source("https", f"https://localhost:{server.port}/{name}.wav")
    options = JobOptions(model="plain", speech_detector=False)
    with stack.db.begin() as tx:
        return create_job(tx, NewJob(source, options, f"{name}.wav"))[0].id


@pytest.mark.parametrize(
    "sent_at_once",
    [pytest.param(0, id="headers", marks=pytest.mark.long), pytest.param(len(HEADERS) + 1500, id="body")],
)
def test_a_worker_cancels_and_drains_although_every_server_drips(
    embedded: Stack, tmp_path: Path, sent_at_once: int
) -> None:
    with DripServer(tmp_path) as server:
        server.sent_at_once = sent_at_once
        # A lease as it is by default: how soon a cancel is seen must not depend on a short one.
        worker = embedded.worker(
            "reader",
            SSL_CERT_FILE=str(server.certificate),
            SPOOL_SOURCE_PRIVATE_HOSTS="localhost",
            SPOOL_LEASE_SECONDS="20",
            SPOOL_CONCURRENCY="4",
        )
        cancelled, *jobs = (submit(embedded, server, f"drip-{number}") for number in range(4))
        until(lambda: server.asked >= 4, "every slot of the worker waits for a server")
        with embedded.db.begin() as tx:
            cancel_job(tx, cancelled)
        until_within(
            lambda: embedded.job(cancelled).state is JobState.CANCELLED, "the cancel", CANCEL_SECONDS
        )
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(DRAIN_SECONDS) == 0
    assert {embedded.job(job_id).state for job_id in jobs} == {JobState.QUEUED}
    assert {embedded.job(job_id).crashes for job_id in jobs} == {0}
    with embedded.db.begin() as tx:
        for job_id in jobs:
            cancel_job(tx, job_id)
