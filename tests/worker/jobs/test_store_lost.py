"""A job whose database loses the answer to a commit or goes away: nothing is lost, nothing billed twice."""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection

from ops.testbed.jobs import WorkerHarness, speechlike
from ops.testbed.rows import claimed, let_lapse, queued, registered
from ops.testbed.waiting import DEADLINE, until
from spool.domain import ChunkSpan, JobState, Recognition
from spool.errors import LeaseLost, StorageError
from spool.settings import Settings
from spool.store import Charge, Claim, Database
from worker.engine import Engine
from worker.jobs import Attempt, Lease, retry_storage
from worker.service import WastedTime


class ForgetfulDatabase(Database):
    """A real database whose connection breaks, by chance, right after a commit or instead of one."""

    lost_answers = 0.0
    lost_commits = 0.0
    away = False

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._chance = random.Random(7)
        self.breaks = 0
        self.commits = 0

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        if self.away or self._chance.random() < self.lost_commits:
            self.breaks += 1
            raise StorageError("The database does not answer.")
        with super().begin() as tx:
            yield tx
        self.commits += 1
        if self._chance.random() < self.lost_answers:
            self.breaks += 1
            raise StorageError("The connection to the database was lost.")


@pytest.fixture
def db(sqlite_url: str) -> Iterator[ForgetfulDatabase]:
    database = ForgetfulDatabase(sqlite_url)
    yield database
    database.close()


@pytest.fixture
def harness(
    db: ForgetfulDatabase, tmp_path: Path, engine: Engine, make_settings: Callable[..., Settings]
) -> WorkerHarness:
    settings = make_settings(
        models={"plain": "plain"}, default_model="plain", source_roots=(tmp_path,), lease_seconds=30
    )
    return WorkerHarness(settings, db, engine, tmp_path)


@pytest.mark.integration
@pytest.mark.parametrize(("answers", "commits"), [(0.3, 0.0), (0.0, 0.3), (0.2, 0.2)])
def test_a_lost_answer_bills_nothing_twice(
    harness: WorkerHarness, db: ForgetfulDatabase, answers: float, commits: float
) -> None:
    job_id = harness.submit(harness.record("talk.wav", speechlike(150)))
    db.lost_answers, db.lost_commits = answers, commits
    for _ in range(20):
        with contextlib.suppress(StorageError):  # of the claim; what runs then never raises
            harness.run(job_id)
        if harness.job(job_id).state.terminal:
            break
        let_lapse_if_running(harness, db, job_id)
    db.lost_answers = db.lost_commits = 0.0
    assert db.breaks > 0
    job = harness.job(job_id)
    assert (job.state, job.coverage) == (JobState.DONE, 1.0)
    assert job.transcript_key is not None
    assert harness.objects.head(job.transcript_key) is not None, "the transcript that the row names is there"
    chunks = harness.chunks(job_id)
    assert harness.decoded == len(chunks)
    cost = harness.cost(job_id)
    assert cost.wasted_cost == 0
    assert cost.audio_seconds == 150.0
    assert cost.billable_ns == sum(chunk.heard.engine_ns for chunk in chunks)
    harness.assert_bills_equal_busy_time()


@pytest.mark.integration
def test_chunks_that_come_back_together_are_one_commit(harness: WorkerHarness, db: ForgetfulDatabase) -> None:
    claim = claimed(db, worker_id=harness.worker_id)
    attempt = Attempt(context=harness.services.context, claim=claim, lease=Lease(db, claim, 60.0))
    chunks = [
        (ChunkSpan(0, n, 100 * n, 100 * n + 100, 100 * n, 100 * n + 100), Recognition()) for n in range(6)
    ]
    before = db.commits
    attempt.keep(chunks[:4])
    assert db.commits == before + 1
    assert [chunk.span.index for chunk in harness.chunks(claim.job.id)] == [0, 1, 2, 3]
    assert harness.job(claim.job.id).done_seconds == 400 / 16_000

    db.lost_answers = 1.0  # the commit goes through, and nobody is told
    saving = threading.Thread(target=attempt.keep, args=(chunks[4:],))
    saving.start()
    until(lambda: db.breaks, "an answer that was lost")
    db.lost_answers = 0.0
    saving.join(DEADLINE)
    assert not saving.is_alive()
    assert [chunk.span.index for chunk in harness.chunks(claim.job.id)] == [0, 1, 2, 3, 4, 5]
    assert harness.cost(claim.job.id).audio_seconds == 600 / 16_000


def let_lapse_if_running(harness: WorkerHarness, db: ForgetfulDatabase, job_id: str) -> None:
    """A claim whose answer was lost is nobody's: its lease has to run out."""
    if harness.job(job_id).state is JobState.RUNNING:
        answers, commits = db.lost_answers, db.lost_commits
        db.lost_answers = db.lost_commits = 0.0
        let_lapse(db, job_id)
        db.lost_answers, db.lost_commits = answers, commits


def test_wasted_time_waits_for_the_database(db: ForgetfulDatabase) -> None:
    worker_id = registered(db)
    job = queued(db)
    wasted = WastedTime(db)
    wasted.add(job.id, 1, Charge(worker_id, 5, 0, 1, "demo-tdt", "cpu", "default"))
    wasted.add(job.id, 1, Charge(worker_id, 0, 0, 1, "demo-tdt", "cpu", "default"))
    assert len(wasted) == 1, "no time is no debt"
    db.away = True
    assert not wasted.write()
    assert len(wasted) == 1
    db.away = False
    assert wasted.write()
    assert len(wasted) == 0


def test_a_lease_that_cannot_be_renewed_is_given_up_in_time(db: ForgetfulDatabase) -> None:
    claim = claimed(db, lease=0.6)
    with Lease(db, claim, 0.6, outage_seconds=lambda: 0.6) as lease:
        lease.check()
        db.away = True
        until(lease.stop.is_set, "the lease given up")
        with pytest.raises(LeaseLost):
            lease.check()
        db.away = False


def test_a_short_outage_costs_no_lease(db: ForgetfulDatabase) -> None:
    claim = claimed(db, lease=6.0)
    with Lease(db, claim, 6.0) as lease:
        db.away = True
        until(lambda: db.breaks >= 1, "a renewal that failed")
        db.away = False
        renewed = db.commits + 1
        until(lambda: db.commits >= renewed, "a renewal that came through")
        lease.check()
        assert not lease.stop.is_set()


def test_a_lease_has_a_thread_from_its_first_renewal_on(db: ForgetfulDatabase) -> None:
    def runs(claim: Claim) -> bool:
        return f"lease-{claim.job.id}" in {thread.name for thread in threading.enumerate()}

    long, short = claimed(db, lease=60.0), claimed(db, lease=0.6)
    with Lease(db, long, 60.0), Lease(db, short, 0.6):
        until(lambda: runs(short), "the thread of the lease that has to be renewed")
        assert not runs(long)
        renewed = db.commits + 2
        until(lambda: db.commits >= renewed, "two renewals")
    assert not runs(short)


def test_patience_ends() -> None:
    calls = []

    def refuse() -> None:
        calls.append(1)
        raise StorageError("no")

    with pytest.raises(StorageError):
        retry_storage(refuse, 0.5)
    assert len(calls) > 1
