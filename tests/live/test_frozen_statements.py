"""A machine that falls silent after any statement of any transaction holds up nobody else, on PostgreSQL.

Each case runs one operation of a worker or an API process again and again; each time the process is frozen
after another of its statements, with the transaction open, while others go on claiming and sweeping.
"""

import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from sqlalchemy import Connection, event, func, select

from ops.testbed.rows import bill, chunk, claimed, queued, registered, reread
from spool.domain import JobState, Quota, Rules
from spool.errors import StorageError
from spool.store import (
    IDLE_IN_TRANSACTION_S,
    Claim,
    ClaimRequest,
    Database,
    Outcome,
    SweepLimits,
    claim_next,
    finish_job,
    heartbeat,
    save_chunk,
)
from spool.store.queue import locks, outbox, quotas
from spool.tables import jobs
from tests.live.blocking import held_up

LEASE_SECONDS = 1.0
BACK_SECONDS = 60.0
"""What is left of 30 s with so short a lease, 11 s, and the patience that a loaded machine needs. Without the
server's timeouts it would be 120 s and more."""
CLAIMERS = 3
METERED = "metered"
"""A project with a quota; the others' claims of the default project are not to wait for its row."""
RULES = Rules(quotas={METERED: Quota(jobs_in_flight=10_000)})
OUTCOME = Outcome(60.0, "jobs/t.json", "0" * 64, 1.0, 12)

EACH = {"claim under a quota": 5}
"""Every so many statements the process is frozen: after its first few it holds the row until its end."""

Operation = Callable[[Connection, Claim], None]


def _claim(tx: Connection, _: Claim) -> None:
    assert isinstance(claim_next(tx, _request("frozen"), RULES), Claim)


def _metered_claim(tx: Connection, _: Claim) -> None:
    assert quotas.still_free(tx, RULES.quotas, METERED)
    assert isinstance(claim_next(tx, _request("frozen"), RULES), Claim)


def _chunk(tx: Connection, claim: Claim) -> None:
    save_chunk(tx, claim, chunk(), bill(claim.worker_id))


def _sweep(tx: Connection, claim: Claim) -> None:
    assert locks.try_lock(tx, locks.SWEEP_LOCK, f"swp_{claim.job.id}", 0.1)
    outbox.sweep(tx, SweepLimits())


def _relay(tx: Connection, _: Claim) -> None:
    hints = outbox.due_hints(tx, 10)
    outbox.mark_sent(tx, hints)


OPERATIONS: dict[str, Operation] = {
    "claim": _claim,
    "claim under a quota": _metered_claim,
    "chunk": _chunk,
    "finish": lambda tx, claim: finish_job(tx, claim, OUTCOME),
    "sweep": _sweep,
    "relay": _relay,
    "heartbeat": lambda tx, claim: heartbeat(tx, claim.worker_id, "ready", 0),
}


def _request(name: str, lease: float = LEASE_SECONDS) -> ClaimRequest:
    return ClaimRequest(f"wrk_{name}", "cpu", name, lease, alone=False)


class Freezer:
    """A process of its own, as far as the database can see, that can be frozen after its nth statement."""

    def __init__(self, url: str) -> None:
        self.db = Database(url, idle_seconds=IDLE_IN_TRANSACTION_S)
        self._observer = Database(url)
        self.statements = 0
        self.freeze_after = 0
        self.waits: list[float] = []
        """Of the others, as they end."""
        self.claims_beside = 0
        self.held_up: set[str] = set()
        """Statements of others that waited for a lock of the frozen process."""
        event.listen(self.db.engine, "after_cursor_execute", self._executed)

    def close(self) -> None:
        self.db.close()
        self._observer.close()

    def _executed(self, _connection: Connection, cursor: psycopg.Cursor[object], *_: object) -> None:
        self.statements += 1
        if self.statements == self.freeze_after:
            before, end = len(self.waits), time.monotonic() + IDLE_IN_TRANSACTION_S + 0.5
            while time.monotonic() < end:
                self.held_up |= held_up(self._observer, cursor.connection.info.backend_pid)
                time.sleep(0.05)
            self.claims_beside = len(self.waits) - before

    def freezes(self, operation: Operation, claim: Claim, after: int) -> bool:
        """Run it and freeze after so many statements; False where it has fewer, and was committed."""
        self.statements, self.freeze_after, error = 0, after, None
        try:
            with self.db.begin() as tx:
                operation(tx, claim)
        except StorageError as given_up:
            error = given_up
        assert (error is not None) == (self.statements >= after), "the server gives up a silent transaction"
        return error is not None


class Others:
    """The rest of the fleet: workers that claim and finish, and a sweeper. `supplied`: for each job that is
    done another is submitted, so that nobody has to wait for those of the project with a quota."""

    def __init__(self, url: str, *, supplied: bool = False) -> None:
        self.db = Database(url)
        self._supplied = supplied
        self.waits: list[float] = []
        self.errors: list[Exception] = []
        self._stopping = threading.Event()
        work = [lambda n=n: self._work(n) for n in range(CLAIMERS)]
        self._threads = [threading.Thread(target=self._guarded, args=(one,)) for one in (*work, self._sweep)]

    def __enter__(self) -> "Others":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self.db.close()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            while not self._stopping.wait(0.01):
                work()
        except Exception as error:  # noqa: BLE001 - said by the test's own thread
            self.errors.append(error)

    def _work(self, number: int) -> None:
        began = time.monotonic()
        with self.db.begin() as tx:
            claim = claim_next(tx, _request(f"w{number}", 60.0), RULES)
        self.waits.append(time.monotonic() - began)
        if isinstance(claim, Claim):
            with self.db.begin() as tx:
                finish_job(tx, claim, OUTCOME)
            if self._supplied:
                queued(self.db)

    def _sweep(self) -> None:
        with self.db.begin() as tx:
            outbox.sweep(tx, SweepLimits())
        self._stopping.wait(0.2)


@pytest.fixture
def db(postgres_url: str) -> Iterator[Database]:
    own = Database(postgres_url)
    yield own
    own.close()


@pytest.fixture
def freezer(postgres_url: str) -> Iterator[Freezer]:
    freezer = Freezer(postgres_url)
    yield freezer
    freezer.close()


OFTEN = ("claim under a quota", "finish", "heartbeat")  # the others take minutes together


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.long) for name in OPERATIONS]
)
def test_nobody_waits_for_a_process_that_froze(
    name: str, freezer: Freezer, db: Database, postgres_url: str
) -> None:
    operation, worker = OPERATIONS[name], registered(db)

    def prepared() -> Claim:
        for number in range(20):
            queued(db, **({"project": METERED} if number % 4 == 0 else {}))
        return claimed(db, worker_id=worker, lease=LEASE_SECONDS)

    after, is_frozen = 0, True
    while is_frozen:
        after += EACH.get(name, 1)
        claim = prepared()
        with Others(postgres_url, supplied=True) as others:
            freezer.waits = others.waits
            began = time.monotonic()
            is_frozen = freezer.freezes(operation, claim, after)
            while _is_held(db, claim):
                assert time.monotonic() - began < BACK_SECONDS, f"the job of {name}, frozen after {after}"
                time.sleep(0.1)
        assert not others.errors, f"{name}, frozen after statement {after}: {others.errors}"
        if is_frozen:
            assert not freezer.held_up, f"{name}, frozen after statement {after}: {freezer.held_up}"
            p99 = sorted(others.waits)[int(0.99 * len(others.waits))]
            print(f"{name}, frozen after {after}: {freezer.claims_beside} claims beside it, p99 {p99:.2f} s")
    assert after > 1
    with Others(postgres_url), db.read() as tx:
        began = time.monotonic()
        while tx.scalar(select(func.count()).where(jobs.c.state != JobState.DONE.value)):
            assert time.monotonic() - began < BACK_SECONDS
            time.sleep(0.1)


def _is_held(db: Database, claim: Claim) -> bool:
    job = reread(db, claim.job.id)
    return job.state is JobState.RUNNING and job.attempt == claim.attempt
