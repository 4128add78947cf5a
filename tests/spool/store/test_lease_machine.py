"""Jobs and leases against a model: any order of claims, lapses, saves, hand backs and people's wishes.

Workers fall silent, come back, sign off, and are started anew under their names. After every step the rows
say what the model says, nothing that a worker without the claim wrote has stayed, the bills are the sums of
what was charged, and the audit finds no breach of the laws that rest on SQL alone.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import delete, func, select

from ops.testbed.rows import LEASE, bill, chunk, let_lapse, queued, registered, reread
from spool.audit import audit
from spool.domain import MOVES, JobState
from spool.errors import Conflict, LeaseLost
from spool.objects import FolderStore
from spool.store import (
    Claim,
    Database,
    Outcome,
    SweepLimits,
    cancel_claimed,
    cancel_job,
    claim_job,
    due_hints,
    fail_job,
    finish_job,
    hand_back,
    heartbeat,
    load_chunks,
    mark_sent,
    renew_lease,
    retry_job,
    save_chunk,
    stop_worker,
    sweep,
    try_lock,
    write_charge,
)
from spool.tables import chunks, cost_lines, jobs, outbox, workers

pytestmark = pytest.mark.slow

MAX_CRASHES = 3
CHUNKS = 3
PICK = st.integers(0, 11)
RULES_OF_SQL = {"owned", "chunks", "billed", "wasted", "priced", "busy"}


@dataclass
class Expected:
    """What the model knows of one job."""

    state: JobState = JobState.QUEUED
    attempt: int = 0
    crashes: int = 0
    transient_failures: int = 0
    ran: float = 0.0
    owner: str | None = None
    lapsed: bool = False
    suspects: dict[str, int] = field(default_factory=dict)
    """By worker id: the time at which it was last seen."""
    cancel: bool = False
    code: str | None = None
    chunks: set[int] = field(default_factory=set)

    def become(self, state: JobState) -> None:
        assert (self.state, state) in MOVES
        self.state = state
        if state is not JobState.RUNNING:
            self.owner, self.lapsed = None, False

    def end(self, how: str, transient_failures: int, ran: float) -> None:
        if how == "back":
            self.become(JobState.CANCELLED if self.cancel else JobState.QUEUED)
            self.transient_failures, self.ran = transient_failures, ran
        else:
            self.become({"fail": JobState.FAILED, "stop": JobState.CANCELLED, "finish": JobState.DONE}[how])
            self.code = {"fail": "audio", "stop": self.code, "finish": None}[how]

    def take_back(self, owner: "Process") -> None:
        self.suspects.pop(owner.id, None)
        if owner.ended:
            self.crashes += 1
        else:
            self.suspects[owner.id] = owner.seen
        if self.cancel:
            self.become(JobState.CANCELLED)
        else:
            self.become(JobState.QUEUED)
            self.set_aside()

    def set_aside(self) -> None:
        if self.state is JobState.QUEUED and self.crashes >= MAX_CRASHES:
            self.become(JobState.FAILED)
            self.code = "poison"

    def review(self, processes: dict[str, "Process"]) -> None:
        if self.state not in {JobState.QUEUED, JobState.RUNNING}:
            return
        for worker_id, last_seen in list(self.suspects.items()):
            process = processes[worker_id]
            if process.seen > last_seen:
                del self.suspects[worker_id]
            elif process.ended:
                del self.suspects[worker_id]
                self.crashes += 1
        self.set_aside()

    @property
    def last_chance(self) -> bool:
        return self.crashes + len(self.suspects) >= MAX_CRASHES - 1


@dataclass
class Process:
    """What the model knows of one worker process."""

    id: str
    name: str
    seen: int
    ended: bool = False


class LeaseMachine(RuleBasedStateMachine):
    """Two workers and a few jobs. Claims are kept for ever, so that zombies write whenever they like."""

    db: Database
    folder: Path

    def __init__(self) -> None:
        super().__init__()
        with self.db.begin() as tx:
            for table in (outbox, chunks, cost_lines, jobs, workers):
                tx.execute(delete(table))
        self.processes: dict[str, Process] = {}
        self.time = 0
        self.workers = [self._start(name) for name in ("alpha", "beta")]
        self.expected: dict[str, Expected] = {}
        self.claims: list[Claim] = []
        self.billed_ns: dict[str, int] = dict.fromkeys(self.workers, 0)
        for _ in range(3):
            self.expected[queued(self.db).id] = Expected()

    # --- people ---------------------------------------------------------------------------------------------

    @rule(pick=PICK)
    @precondition(lambda self: self._in(JobState.RUNNING))
    def cancel(self, pick: int) -> None:
        job_id = self._job(pick)
        was = self.expected[job_id]
        with self._refused(was.state.terminal, Conflict), self.db.begin() as tx:
            cancel_job(tx, job_id)
        if was.state is JobState.QUEUED:
            was.become(JobState.CANCELLED)
        elif was.state is JobState.RUNNING:
            was.cancel = True

    @rule(pick=PICK)
    @precondition(lambda self: any(was.state.terminal for was in self.expected.values()))
    def retry(self, pick: int) -> None:
        """A person insists, mostly where that may be."""
        ended = self._in(JobState.FAILED) + self._in(JobState.CANCELLED)
        job_id = ended[pick % len(ended)] if ended and pick % 4 else self._job(pick)
        was = self.expected[job_id]
        may = was.state in {JobState.FAILED, JobState.CANCELLED}
        with self._refused(not may, Conflict), self.db.begin() as tx:
            retry_job(tx, job_id)
        if may:
            was.become(JobState.QUEUED)
            was.crashes, was.transient_failures, was.ran, was.cancel, was.code = 0, 0, 0.0, False, None
            was.suspects = {}

    # --- time -----------------------------------------------------------------------------------------------

    @rule(pick=PICK, swept=st.booleans(), only_ended=st.booleans())
    @precondition(lambda self: self._in(JobState.RUNNING))
    def lapse(self, pick: int, swept: bool, only_ended: bool) -> None:
        job_id = self._job(pick, JobState.RUNNING)
        let_lapse(self.db, job_id)
        self.expected[job_id].lapsed = True
        if swept:
            self._sweep(only_ended)

    @rule(only_ended=st.booleans())
    def sweep(self, only_ended: bool) -> None:
        self._sweep(only_ended)

    def _sweep(self, only_ended: bool) -> None:
        """only_ended: as after an outage of the database."""
        with self.db.begin() as tx:
            assert try_lock(tx, "sweep", "me", 60)
            report = sweep(tx, SweepLimits(max_crashes=MAX_CRASHES, only_ended=only_ended))
        lapsed = {
            job_id
            for job_id, job in self.expected.items()
            if job.lapsed and (self._owner(job).ended or not only_ended)
        }
        assert {job.id for job in report.taken} == lapsed
        for job_id, job in self.expected.items():
            if job_id in lapsed:
                job.take_back(self._owner(job))
            job.review(self.processes)
        with self.db.begin() as tx:
            mark_sent(tx, due_hints(tx, 100))

    # --- processes ------------------------------------------------------------------------------------------

    def _start(self, name: str) -> str:
        """Register another process of this name; the one before has ended."""
        for process in self.processes.values():
            process.ended = process.ended or process.name == name
        process = Process(registered(self.db, name), name, self._tick())
        self.processes[process.id] = process
        return process.id

    def _tick(self) -> int:
        """SQLite's clock has milliseconds: no two of these are seen at the same time."""
        time.sleep(0.002)
        self.time += 1
        return self.time

    @rule(worker=st.integers(0, 1))
    def restart(self, worker: int) -> None:
        """The process before it may still write: whoever starts two under one name meets that."""
        self.workers[worker] = self._start(self.processes[self.workers[worker]].name)
        self.billed_ns[self.workers[worker]] = 0

    @rule(worker=st.integers(0, 1))
    def beat(self, worker: int) -> None:
        process = self.processes[self.workers[worker]]
        if process.ended:
            return
        process.seen = self._tick()
        with self.db.begin() as tx:
            heartbeat(tx, process.id, "ready", self.billed_ns[process.id])

    @rule(worker=st.integers(0, 1))
    def sign_off(self, worker: int) -> None:
        """It writes nothing any more, though a job of its may hang."""
        process = self.processes[self.workers[worker]]
        if process.ended:
            return
        process.seen, process.ended = self._tick(), True
        with self.db.begin() as tx:
            stop_worker(tx, process.id, self.billed_ns[process.id])
        self.claims = [claim for claim in self.claims if claim.worker_id != process.id]

    # --- workers --------------------------------------------------------------------------------------------

    @rule(pick=PICK, worker=st.integers(0, 1), alone=st.booleans())
    def claim(self, pick: int, worker: int, alone: bool) -> None:
        job_id = self._job(pick, JobState.QUEUED if pick % 4 else None)
        was = self.expected[job_id]
        if self.processes[self.workers[worker]].ended:
            self.restart(worker)
        owner = self.workers[worker]
        with self.db.begin() as tx:
            claim = claim_job(tx, job_id, owner, LEASE, max_crashes=MAX_CRASHES, alone=alone)
        if was.lapsed:
            was.take_back(self._owner(was))
        was.set_aside()
        if was.state is JobState.QUEUED and (alone or not was.last_chance):
            was.become(JobState.RUNNING)
            was.attempt += 1
            was.owner = owner
            assert claim is not None
            assert claim.attempt == was.attempt
            self.claims.append(claim)
        else:
            assert claim is None

    @rule(pick=PICK, index=st.integers(0, CHUNKS - 1), engine_ns=st.integers(1, 10**9), wasted=st.booleans())
    @precondition(lambda self: self.claims)
    def work(self, pick: int, index: int, engine_ns: int, wasted: bool) -> None:
        """Save a chunk and renew; or charge what nobody keeps, which zombies may too."""
        claim = self._claim(pick)
        paid = bill(claim.worker_id, engine_ns)
        if wasted:
            with self.db.begin() as tx:
                write_charge(tx, claim.job.id, claim.attempt, replace(paid, audio_samples=0), wasted=True)
            self.billed_ns[claim.worker_id] += engine_ns
            return
        with self._fenced(claim) as was:
            ran = claim.job.ran_seconds + 1.5
            with self.db.begin() as tx:
                save_chunk(tx, claim, chunk(index, engine_ns=engine_ns), paid)
                cancel = renew_lease(tx, claim, LEASE, ran)
            assert was is not None
            assert cancel == was.cancel
            was.lapsed, was.ran = False, ran
            was.chunks.add(index)
            self.billed_ns[claim.worker_id] += engine_ns

    @rule(
        pick=PICK,
        how=st.sampled_from(["back", "back", "fail", "stop", "finish"]),
        transient_failures=st.integers(0, 5),
    )
    @precondition(lambda self: self.claims)
    def end(self, pick: int, how: str, transient_failures: int) -> None:
        claim = self._claim(pick)
        with self._fenced(claim) as was:
            ran = claim.job.ran_seconds + 2
            with self.db.begin() as tx:
                if how == "back":
                    hand_back(tx, claim, transient_failures=transient_failures, ran_seconds=ran)
                elif how == "fail":
                    fail_job(tx, claim, "audio", "No.")
                elif how == "stop":
                    cancel_claimed(tx, claim)
                else:
                    finish_job(tx, claim, Outcome(60.0, f"jobs/{claim.job.id}/t.json", "0" * 64, 1.0, 0))
            assert was is not None
            was.end(how, transient_failures, ran)

    # --- what must hold -------------------------------------------------------------------------------------

    @invariant()
    def rows_are_as_expected(self) -> None:
        for job_id, was in self.expected.items():
            job = reread(self.db, job_id)
            now = (
                job.state,
                job.attempt,
                job.crashes,
                job.transient_failures,
                job.lease_owner,
                job.error_code,
            )
            assert now == (was.state, was.attempt, was.crashes, was.transient_failures, was.owner, was.code)
            assert (job.cancel_requested, job.ran_seconds) == (was.cancel, was.ran)
            with self.db.read() as tx:
                suspects = tx.scalar(select(jobs.c.suspects).where(jobs.c.id == job_id))
                assert set(suspects or ()) == set(was.suspects)
                assert {saved.span.index for saved in load_chunks(tx, job_id)} == was.chunks

    @invariant()
    def bills_are_what_was_charged(self) -> None:
        with self.db.read() as tx:
            sums = tx.execute(
                select(cost_lines.c.worker_id, func.sum(cost_lines.c.engine_ns)).group_by(
                    cost_lines.c.worker_id
                )
            )
            billed = {worker: int(total) for worker, total in sums}
            busy = dict(tx.execute(select(workers.c.id, workers.c.busy_ns)).all())
        assert busy == self.billed_ns
        assert billed == {worker: total for worker, total in self.billed_ns.items() if total}

    def teardown(self) -> None:
        """At the end, since it reads everything."""
        report = audit(self.db, FolderStore(self.folder))
        assert [breach for breach in report.breaches if breach.rule in RULES_OF_SQL] == []

    # --- helpers --------------------------------------------------------------------------------------------

    @contextmanager
    def _refused(self, refused: bool, kind: type[Exception]) -> Iterator[None]:
        if not refused:
            yield
            return
        with pytest.raises(kind):
            yield

    @contextmanager
    def _fenced(self, claim: Claim) -> Iterator[Expected | None]:
        """The block writes by `claim`: with effect where that still holds, else LeaseLost and nothing."""
        if self._holds(claim):
            yield self.expected[claim.job.id]
            return
        with pytest.raises(LeaseLost):
            yield None

    def _holds(self, claim: Claim) -> bool:
        was = self.expected[claim.job.id]
        owned = (was.attempt, was.owner) == (claim.attempt, claim.worker_id)
        return was.state is JobState.RUNNING and owned

    def _claim(self, pick: int) -> Claim:
        """Mostly one that holds."""
        live = [claim for claim in self.claims if self._holds(claim)]
        pool = live if live and pick % 4 else self.claims
        return pool[pick % len(pool)]

    def _owner(self, was: Expected) -> Process:
        return self.processes[was.owner or ""]

    def _in(self, state: JobState | None) -> list[str]:
        return [job_id for job_id, was in self.expected.items() if state in (None, was.state)]

    def _job(self, pick: int, state: JobState | None = None) -> str:
        """One in this state, if there is one."""
        pool = self._in(state) or self._in(None)
        return pool[pick % len(pool)]


def test_jobs_and_leases_are_their_model(db: Database, tmp_path: Path) -> None:
    machine = type("Machine", (LeaseMachine,), {"db": db, "folder": tmp_path / "objects"})
    postgresql = db.dialect != "sqlite"
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=4 if postgresql else 8,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
