"""Two APIs at once, and APIs that die while they take batches: no job twice, no message twice, none lost."""

import itertools
import json
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from sqlalchemy import func, select

from ops.testbed.stack import HEADERS, Stack, gone, post_upload, until
from spool.broker import queue_depth
from spool.broker.celery_app import celery_app
from spool.domain import JobState
from spool.store import get_batch
from spool.tables import jobs, outbox

long = pytest.mark.long
NAMES = ("api", "other")


def waiting_hints(stack: Stack) -> int:
    with stack.db.read() as tx:
        return int(tx.scalar(select(func.count()).select_from(outbox)) or 0)


def waiting_messages(stack: Stack) -> int:
    app = celery_app(stack.settings)
    try:
        with stack.db.read() as tx:
            names = tx.scalars(select(jobs.c.queue).distinct()).all()
        return sum(queue_depth(app, name) for name in names)
    finally:
        app.close()


def number_of_jobs(stack: Stack) -> int:
    with stack.db.read() as tx:
        return int(tx.scalar(select(func.count()).select_from(jobs)) or 0)


@long
@pytest.mark.parametrize("kind", ["stack", "embedded"])
def test_two_apis_are_sent_the_same_uploads_at_once(request: pytest.FixtureRequest, kind: str) -> None:
    for each in (request.getfixturevalue("stack"), stack := request.getfixturevalue(kind)):
        each.stop_workers()  # they share a broker, and nobody is to take the messages
        each.stop_apis()
    # Sweeps, which may send a message again that is old, stand apart: what is tried here is the outbox.
    urls = [stack.serve(name, SPOOL_HINT_STALE_SECONDS="600") for name in NAMES]
    recordings = {f"same-{kind}-{number}": stack.record(10) for number in range(5)}
    before = number_of_jobs(stack)
    with stack.redis.client() as client:
        client.flushall()
    title = f"5 uploads, each twice to each of two APIs at once ({stack.db.dialect})"
    with stack.fault(title) as fault:
        asked = [(url, key) for key in recordings for url in urls for _ in range(2)]
        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda ask: post_upload(ask[0], recordings[ask[1]], ask[1]), asked))
        assert {answer.status_code for answer in answers} <= {200, 202}, [a.text for a in answers]
        created = {(key, answer.json()["id"]) for (_, key), answer in zip(asked, answers, strict=True)}
        assert len(created) == len(recordings) == number_of_jobs(stack) - before, "a job a key"
        until(lambda: not waiting_hints(stack), "both relays sent what there was")
        assert waiting_messages(stack) == len(recordings), "and sent it once"
        fault.jobs = [job_id for _, job_id in sorted(created)]
        fault.note = f"{len(answers)} requests"
        stack.worker(SPOOL_LEASE_SECONDS="60")  # so that a second attempt is no slow machine's
    stack.assert_done(fault.jobs)
    assert {stack.job(job_id).attempt for job_id in fault.jobs} == {1}
    assert fault.repeated == 0
    stack.stop_workers()
    stack.stop_apis()
    assert stack.audit().clean


@long
def test_one_of_two_apis_dies_under_load(stack: Stack) -> None:
    stack.worker()
    urls = [stack.serve(name) for name in NAMES]
    recordings = {f"load-{number}": stack.record(10) for number in range(24)}
    before = number_of_jobs(stack)
    accepted: dict[str, str] = {}

    def submit(key: str) -> None:
        for url in itertools.cycle(urls):
            try:
                answer = post_upload(url, recordings[key], key)
            except httpx.HTTPError:
                continue
            assert answer.status_code in {200, 202}, answer.text
            accepted[key] = answer.json()["id"]
            return

    with stack.fault("kill -9 of one of two APIs, with four clients submitting") as fault:
        with ThreadPoolExecutor(4) as pool:
            sent = [pool.submit(submit, key) for key in recordings]
            until(lambda: len(accepted) >= 6, "some accepted")
            stack.api.kill()
            gone(stack.api)
            fault.injected = time.monotonic()
            for each in sent:
                each.result(60)
        fault.jobs = list(accepted.values())
    stack.assert_done(fault.jobs)
    assert len(set(fault.jobs)) == len(recordings) == number_of_jobs(stack) - before
    assert fault.repeated == 0


@long
@pytest.mark.parametrize("point", ["batch.written", "batch.closed"])
def test_an_api_killed_while_it_takes_a_batch(stack: Stack, point: str) -> None:
    stack.stop_apis()
    stack.worker()
    url = stack.serve(SPOOL_TEST_BATCH_BLOCK="4")
    recordings = [stack.record(10) for _ in range(10)]
    lines = [json.dumps({"source": each.as_uri(), "custom_id": each.stem}) for each in recordings]

    def submit(url: str) -> httpx.Response:
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": point, **HEADERS}
        content = "\n".join(lines).encode()
        return httpx.post(f"{url}/v1/batches", content=content, headers=headers, timeout=60, trust_env=False)

    before = number_of_jobs(stack)
    with stack.fault(f"kill -9 of the API at {point}") as fault:
        stack.arm(**{point: "kill:2" if point == "batch.written" else "kill"})
        with pytest.raises(httpx.HTTPError):
            submit(url)
        gone(stack.api)
        fault.injected = time.monotonic()
        stack.disarm()
        written = number_of_jobs(stack) - before
        assert written == (8 if point == "batch.written" else 10), "what was committed stays"
        answer = submit(stack.serve())
        assert answer.status_code in {200, 202}, answer.text
        with stack.db.read() as tx:
            batch = get_batch(tx, answer.json()["id"])
            fault.jobs = list(tx.scalars(select(jobs.c.id).where(jobs.c.batch_id == batch.id)))
        fault.note = f"{written} of 10 lines were written; the client asked again"
    assert number_of_jobs(stack) - before == len(fault.jobs) == len(lines)
    assert batch.closed_at is not None
    assert (batch.accepted, batch.lines, batch.bad) == (10, 10, 0)
    assert {stack.job(job_id).state for job_id in fault.jobs} == {JobState.DONE}
    assert fault.repeated == 0


def test_at_the_end_bills_and_engines_agree(stack: Stack) -> None:
    stack.stop_workers()
    stack.stop_apis()
    report = stack.audit()
    assert report.clean, report.breaches
