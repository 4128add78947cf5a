"""Chunks and costs: law 4 (never decoded again) and law 5 (every busy second on exactly one bill)."""

import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import IntegrityError

from ops.testbed.rows import bill, bill_of, chunk, claimed, let_lapse, queued, registered
from spool.domain import CostReport, GroupBy, cost_nanos, money
from spool.errors import InvalidRequest, LeaseLost, NotFound
from spool.ids import new_id
from spool.store import (
    Charge,
    Claim,
    Database,
    claim_job,
    cost_report,
    hand_back,
    heartbeat,
    job_cost,
    list_workers,
    load_chunks,
    save_chunk,
    stop_worker,
    write_charge,
)
from spool.tables import cost_lines, workers

GROUPS: tuple[GroupBy, ...] = ("day", "project", "model", "worker", "pool", "job", "key", "batch")


def today(db: Database) -> date:
    with db.read() as tx:
        line = tx.execute(select(func.max(cost_lines.c.day))).scalar_one()
    return line or datetime.now(UTC).date()


def report(db: Database, group_by: GroupBy = "day", days: int = 1) -> CostReport:
    end = today(db) + timedelta(days=1)
    with db.read() as tx:
        return cost_report(tx, end - timedelta(days=days), end, group_by)


def sums(db: Database) -> tuple[int, int]:
    """Nanoseconds on cost lines, and on workers."""
    with db.read() as tx:
        lines = tx.execute(select(func.coalesce(func.sum(cost_lines.c.engine_ns), 0))).scalar_one()
        busy = tx.execute(select(func.coalesce(func.sum(workers.c.busy_ns), 0))).scalar_one()
    return int(lines), int(busy)


def test_a_saved_chunk_comes_back_as_it_was_and_is_billed(db: Database) -> None:
    worker = registered(db)
    claim = claimed(db, worker_id=worker)
    with db.begin() as tx:
        save_chunk(tx, claim, chunk(1), bill(worker))
        save_chunk(tx, claim, chunk(0, channel=1), bill(worker))
        save_chunk(tx, claim, chunk(0), bill(worker, 500_000_000))

    with db.read() as tx:
        saved = load_chunks(tx, claim.job.id)
        cost, lines = job_cost(tx, claim.job.id), bill_of(tx, claim.job.id)
    assert [(c.span.channel, c.span.index, c.attempt) for c in saved] == [(0, 0, 1), (0, 1, 1), (1, 0, 1)]
    assert saved[1].heard.words == chunk(1).heard.words
    assert (saved[1].span.core_start, saved[1].span.core_end, saved[1].span.start, saved[1].span.end) == (
        480_000,
        960_000,
        464_000,
        976_000,
    )
    assert cost.engine_seconds == 2.5
    assert cost.audio_seconds == 90.0
    assert cost.rtfx == 36.0
    assert cost.billable_cost == Decimal("0.00025")
    assert cost.wasted_cost == 0
    assert [line.price_per_hour_micros for line in lines] == [360_000]


def test_a_chunk_saved_twice_is_kept_once_and_the_repeat_is_wasted(db: Database) -> None:
    worker = registered(db)
    claim = claimed(db, worker_id=worker)
    for engine_ns in (1_000_000_000, 2_000_000_000):
        with db.begin() as tx:
            save_chunk(tx, claim, chunk(0, engine_ns=engine_ns), bill(worker, engine_ns))

    with db.read() as tx:
        assert [saved.heard.engine_ns for saved in load_chunks(tx, claim.job.id)] == [1_000_000_000]
        cost, lines = job_cost(tx, claim.job.id), bill_of(tx, claim.job.id)
    assert (cost.billable_ns, cost.wasted_ns) == (1_000_000_000, 2_000_000_000)
    assert cost.audio_seconds == 30.0, "the audio counts once"
    assert [line.wasted for line in lines] == [False, True]


def test_the_same_chunk_from_many_threads_at_once_is_kept_once(db: Database) -> None:
    worker = registered(db)
    claim = claimed(db, worker_id=worker)
    start = threading.Barrier(8)

    def save() -> None:
        start.wait()
        with db.begin() as tx:
            save_chunk(tx, claim, chunk(), bill(worker, 10))

    threads = [threading.Thread(target=save) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with db.read() as tx:
        assert len(load_chunks(tx, claim.job.id)) == 1
        cost = job_cost(tx, claim.job.id)
    assert (cost.billable_ns, cost.wasted_ns) == (10, 70)
    assert sums(db) == (80, 80)


def test_a_job_taken_over_goes_on_from_its_chunks(db: Database) -> None:
    first, second = registered(db, "first"), registered(db, "second")
    claim = claimed(db, worker_id=first)
    with db.begin() as tx:
        save_chunk(tx, claim, chunk(0), bill(first))
    let_lapse(db, claim.job.id)
    heir = claimed(db, claim.job.id, second)

    with db.read() as tx:
        assert [saved.span.index for saved in load_chunks(tx, claim.job.id)] == [0]
    with db.begin() as tx:
        save_chunk(tx, heir, chunk(1), bill(second))
    # The zombie's chunk is refused; its engine time is still a fact
    with pytest.raises(LeaseLost), db.begin() as tx:
        save_chunk(tx, claim, chunk(2), bill(first, 7))
    with db.begin() as tx:
        write_charge(tx, claim.job.id, claim.attempt, bill(first, 7), wasted=True)

    with db.read() as tx:
        lines = bill_of(tx, claim.job.id)
    assert [(line.attempt, line.worker, line.wasted, line.engine_ns) for line in lines] == [
        (1, "first", False, 1_000_000_000),
        (1, "first", True, 7),
        (2, "second", False, 1_000_000_000),
    ]
    assert sums(db) == (2_000_000_007, 2_000_000_007)


def test_a_crash_between_chunk_and_commit_leaves_neither_chunk_nor_cost(db: Database) -> None:
    worker = registered(db)
    claim = claimed(db, worker_id=worker)

    def crash() -> None:
        with db.begin() as tx:
            save_chunk(tx, claim, chunk(), bill(worker))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crash()
    assert sums(db) == (0, 0)
    with db.read() as tx:
        assert load_chunks(tx, claim.job.id) == []


def test_a_chunk_whose_core_is_outside_what_was_heard_is_refused_by_sql(db: Database) -> None:
    worker = registered(db)
    claim = claimed(db, worker_id=worker)
    good = chunk()
    broken = replace(good, span=replace(good.span, core_end=good.span.end + 1))
    with pytest.raises(IntegrityError), db.begin() as tx:
        save_chunk(tx, claim, broken, bill(worker))


def test_an_unregistered_worker_cannot_bill_and_nobody_bills_less_than_nothing(db: Database) -> None:
    job = queued(db)
    with pytest.raises(NotFound, match="not registered"), db.begin() as tx:
        write_charge(tx, job.id, 1, bill(new_id("wrk")))
    worker = registered(db)
    with pytest.raises(InvalidRequest), db.begin() as tx:
        write_charge(tx, job.id, 1, bill(worker, -1))
    assert sums(db) == (0, 0)


def test_a_changed_price_opens_a_new_line_and_leaves_the_old(db: Database) -> None:
    worker = registered(db)
    job = queued(db)
    for price in (1_000_000, 1_000_000, 2_000_000):
        with db.begin() as tx:
            write_charge(tx, job.id, 1, bill(worker, 3_600_000_000_000, price=price))

    with db.read() as tx:
        lines = bill_of(tx, job.id)
    assert [(line.price_per_hour_micros, line.cost_nanos) for line in lines] == [
        (1_000_000, 2_000_000_000),
        (2_000_000, 2_000_000_000),
    ]


def test_a_line_is_rounded_once_however_often_it_grew(db: Database) -> None:
    worker = registered(db)
    job = queued(db)
    for _ in range(10):
        with db.begin() as tx:
            write_charge(tx, job.id, 1, bill(worker, 1, price=10**9))

    with db.read() as tx:
        assert job_cost(tx, job.id).billable_cost == money(cost_nanos(10, 10**9)) == Decimal("0.000000003")


def test_a_line_that_began_with_silence_is_priced_by_what_follows(db: Database) -> None:
    worker = registered(db)
    job = queued(db)
    for engine_ns in (0, 3_600_000_000_000):
        with db.begin() as tx:
            write_charge(tx, job.id, 1, bill(worker, engine_ns))
    with db.read() as tx:
        assert job_cost(tx, job.id).billable_cost == Decimal("0.36")


def test_a_bill_outlives_large_numbers(db: Database) -> None:
    """10,000 engine hours at 1,000 an hour on one line: beyond 64 bits if multiplied in SQL."""
    worker = registered(db)
    job = queued(db)
    for _ in range(2):
        with db.begin() as tx:
            write_charge(tx, job.id, 1, bill(worker, 10_000 * 3600 * 10**9, price=1_000 * 10**6))
    with db.read() as tx:
        assert job_cost(tx, job.id).billable_cost == 20_000_000


def test_every_grouping_adds_up_to_the_same_total(db: Database) -> None:
    mini, studio = registered(db, "mini"), registered(db, "studio")
    for project, worker, engine_ns, wasted in (
        ("radio", mini, 1_234_567_891, False),
        ("radio", studio, 777, True),
        ("film", studio, 987_654_321, False),
    ):
        job = queued(db, project=project)
        with db.begin() as tx:
            write_charge(
                tx, job.id, 1, Charge(worker, engine_ns, 16_000, 123_457, "demo-tdt", "cpu", project), wasted
            )

    reports = {group_by: report(db, group_by) for group_by in GROUPS}
    for group_by, made in reports.items():
        assert sum(row.sums.engine_ns for row in made.rows) == made.total.engine_ns == sums(db)[0], group_by
        assert sum(row.sums.billable_cost for row in made.rows) == made.total.billable_cost, group_by
        assert sum(row.sums.wasted_cost for row in made.rows) == made.total.wasted_cost, group_by
    assert [row.key for row in reports["project"].rows] == ["film", "radio"]
    assert [row.key for row in reports["worker"].rows] == ["mini", "studio"]
    assert [row.key for row in reports["day"].rows] == [today(db).isoformat()]
    assert reports["project"].total.audio_seconds == 2.0, "wasted audio is not transcribed audio"
    assert len(reports["job"].rows) == 3


def test_a_report_keeps_to_its_period(db: Database) -> None:
    worker = registered(db)
    with db.begin() as tx:
        write_charge(tx, queued_id(db), 1, bill(worker))
        tx.execute(update(cost_lines).values(day=date(2026, 1, 31)))

    def seconds(start: date, end: date) -> float:
        with db.read() as tx:
            return cost_report(tx, start, end, "day").total.engine_seconds

    assert seconds(date(2026, 1, 31), date(2026, 2, 1)) == 1.0
    assert seconds(date(2026, 1, 1), date(2026, 1, 31)) == 0.0
    assert seconds(date(2026, 2, 1), date(2026, 3, 1)) == 0.0
    with db.read() as tx, pytest.raises(InvalidRequest, match="period"):
        cost_report(tx, date(2026, 1, 1), date(2026, 1, 1), "day")
    with db.read() as tx, pytest.raises(InvalidRequest, match="grouped by"):
        cost_report(tx, date(2026, 1, 1), date(2026, 1, 2), "wish")  # type: ignore[arg-type]


def queued_id(db: Database) -> str:
    return new_id("job") if db.dialect == "sqlite" else queued(db).id


def test_idle_time_stands_in_the_report_as_idle(db: Database) -> None:
    # Given a worker up for an hour, half of it busy, and one that was up before the period
    worker = registered(db, price=1_000_000)
    early = registered(db, "early", price=1_000_000)
    with db.begin() as tx:
        up = update(workers)
        noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
        tx.execute(
            up.where(workers.c.id == worker).values(started_at=noon, seen_at=noon + timedelta(hours=1))
        )
        past = noon - timedelta(days=9)
        tx.execute(
            up.where(workers.c.id == early).values(started_at=past, stopped_at=past + timedelta(hours=1))
        )
        write_charge(tx, "job_a", 1, bill(worker, 1800 * 10**9, price=1_000_000))
        tx.execute(update(cost_lines).values(day=date(2026, 3, 2)))

    with db.read() as tx:
        day = cost_report(tx, date(2026, 3, 2), date(2026, 3, 3), "day", "EUR")
        empty = cost_report(tx, date(2026, 3, 5), date(2026, 3, 6), "day")

    assert (day.idle_seconds, day.idle_cost) == (1800.0, Decimal("0.5"))
    assert day.total.billable_cost == Decimal("0.5")
    assert day.currency == "EUR"
    assert (empty.idle_seconds, empty.rows, empty.total.rtfx) == (0.0, (), None)


def test_workers_are_listed_with_what_they_said(db: Database) -> None:
    worker = registered(db, "mini")
    other = registered(db, "studio")
    with db.begin() as tx:
        heartbeat(tx, worker, "ready", 123)
        stop_worker(tx, other, 456)

    with db.read() as tx:
        listed = {found.name: found for found in list_workers(tx)}
    assert (listed["mini"].state, listed["mini"].alive, listed["mini"].engine_busy_ns) == ("ready", True, 123)
    assert (listed["studio"].state, listed["studio"].alive, listed["studio"].engine_busy_ns) == (
        "stopped",
        False,
        456,
    )
    assert listed["studio"].stopped_at is not None
    assert listed["mini"].models == ("demo-tdt",)
    with db.begin() as tx:  # long unheard of
        tx.execute(update(workers).values(seen_at=datetime(2026, 1, 1, tzinfo=UTC)))
    with db.read() as tx:
        assert not any(found.alive for found in list_workers(tx))
    for write in (lambda tx: heartbeat(tx, "wrk_no", "ready", 0), lambda tx: stop_worker(tx, "wrk_no")):
        with pytest.raises(NotFound), db.begin() as tx:
            write(tx)


def test_registering_again_keeps_what_was_billed(db: Database) -> None:
    worker = registered(db)
    with db.begin() as tx:
        write_charge(tx, "job_a", 1, bill(worker, 5))
    registered(db, "renamed", worker_id=worker)

    with db.read() as tx:
        (found,) = list_workers(tx)
    assert (found.busy_ns, found.name) == (5, "renamed")


# Law 5 over random lives of jobs: claims, saves, repeats, crashes, takeovers by zombies, drains and crashes.

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["claim", "save", "die", "zombie save", "drain", "crash", "silence"]),
        st.integers(0, 2),  # job
        st.integers(0, 1),  # worker
        st.integers(0, 3),  # chunk
        st.integers(0, 10**12),  # nanoseconds
    ),
    max_size=30,
)


class Life:
    """What the engines really did, beside what the store says they did."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.jobs = [queued(db).id for _ in range(3)]
        self.workers = [registered(db, f"w{number}", 123_457 + number) for number in range(2)]
        self.claims: dict[int, Claim] = {}
        self.lost: list[Claim] = []
        self.busy: dict[str, int] = dict.fromkeys(self.workers, 0)

    def step(self, action: str, job: int, worker: int, index: int, engine_ns: int) -> None:
        claim = self.claims.get(job)
        if action == "claim":
            with self.db.begin() as tx:
                won = claim_job(tx, self.jobs[job], self.workers[worker], 60.0, max_crashes=100)
            assert won is None or claim is None or self.lost[-1:] == [claim]
            if won is not None:
                self.claims[job] = won
        elif action == "zombie save" and self.lost:
            self.save(self.lost[-1], index, engine_ns)
        elif claim is not None:
            self.with_claim(action, job, claim, index, engine_ns)

    def with_claim(self, action: str, job: int, claim: Claim, index: int, engine_ns: int) -> None:
        if action == "save":
            self.save(claim, index, engine_ns)
        elif action == "silence":  # no speech: charged nothing
            self.save(claim, index, 0)
        elif action == "drain":
            with self.db.begin() as tx:
                hand_back(tx, claim)
            self.lost.append(self.claims.pop(job))
        elif action == "die":
            let_lapse(self.db, claim.job.id)
            self.lost.append(self.claims.pop(job))
        elif action == "crash":  # in mid-transaction: the engine's time dies uncounted by both
            with pytest.raises(ZeroDivisionError):
                self.save_and_crash(claim, index, engine_ns)

    def save_and_crash(self, claim: Claim, index: int, engine_ns: int) -> None:
        with self.db.begin() as tx:
            save_chunk(tx, claim, chunk(index), self.bill(claim, engine_ns))
            raise ZeroDivisionError

    def bill(self, claim: Claim, engine_ns: int) -> Charge:
        return bill(claim.worker_id, engine_ns, price=123_457)

    def save(self, claim: Claim, index: int, engine_ns: int) -> None:
        """As a worker does: save and bill together, or bill as wasted."""
        self.busy[claim.worker_id] += engine_ns
        try:
            with self.db.begin() as tx:
                save_chunk(tx, claim, chunk(index, engine_ns=engine_ns), self.bill(claim, engine_ns))
        except LeaseLost:
            with self.db.begin() as tx:
                write_charge(tx, claim.job.id, claim.attempt, self.bill(claim, engine_ns), wasted=True)

    def check(self) -> None:
        with self.db.read() as tx:
            per_worker = {
                row.worker_id: int(row.busy)
                for row in tx.execute(
                    select(cost_lines.c.worker_id, func.sum(cost_lines.c.engine_ns).label("busy")).group_by(
                        cost_lines.c.worker_id
                    )
                )
            }
            stored = {row.id: row.busy_ns for row in tx.execute(select(workers.c.id, workers.c.busy_ns))}
            kept = sum(c.heard.engine_ns for job in self.jobs for c in load_chunks(tx, job))
            bills = [job_cost(tx, job) for job in self.jobs]
            lines = [line for job in self.jobs for line in bill_of(tx, job)]
        assert {worker: per_worker.get(worker, 0) for worker in self.workers} == self.busy
        assert {worker: stored[worker] for worker in self.workers} == self.busy
        assert sum(cost.billable_ns for cost in bills) == kept, "billable is what was kept"
        assert all(line.cost_nanos == cost_nanos(line.engine_ns, 123_457) for line in lines)
        assert sum(cost.billable_cost + cost.wasted_cost for cost in bills) == money(
            sum(line.cost_nanos for line in lines)
        )


@pytest.fixture(params=["sqlite", "postgresql"], scope="module")
def lasting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """One database for all examples; each looks at its own jobs and workers only."""
    if request.param == "sqlite":
        path = tmp_path_factory.mktemp("law5") / "spool.db"
        shutil.copy(request.getfixturevalue("_migrated_sqlite"), path)
        url = f"sqlite:///{path}"
    else:
        url = request.getfixturevalue("_migrated_postgres")
    db = Database(url)
    yield db
    with db.begin() as tx:
        tx.execute(delete(cost_lines))
    db.close()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_law_5_every_busy_nanosecond_is_on_exactly_one_bill(
    lasting: Database, steps: list[tuple[Any, ...]]
) -> None:
    life = Life(lasting)
    for step in steps:
        life.step(*step)
    life.check()
