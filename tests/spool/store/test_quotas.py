"""Projects that used up a quota are passed over, told why, and go on; on SQLite and on PostgreSQL."""

import threading
from collections import Counter
from datetime import timedelta
from decimal import Decimal

from sqlalchemy import select, text, update

from ops.testbed.rows import bill, queued, registered
from spool.domain import Hold, Quota, Rules
from spool.store import (
    Claim,
    ClaimRequest,
    Database,
    SweepLimits,
    claim_next,
    count_runnable,
    find_holds,
    hint_used_up,
    refresh_use,
    seconds_from_now,
    sweep,
    write_charge,
)
from spool.tables import cost_lines, jobs, quota_use
from tests.spool.store.choosing import RULES, batch, charged_to, finish, nothing, taken


def test_a_project_at_its_limit_of_jobs_is_held_until_one_ends(db: Database) -> None:
    rules = Rules(quotas={"small": Quota(jobs_in_flight=2)})
    batch(db, "small", 4)
    other = queued(db, project="other").id
    claims = [taken(db, rules) for _ in range(3)]
    assert Counter(claim.job.project for claim in claims) == {"small": 2, "other": 1}
    assert nothing(db, rules)
    with db.read() as tx:
        held = find_holds(tx, rules.quotas, ["small", "other"])
        assert count_runnable(tx, rules, 10) == {}
        assert count_runnable(tx, RULES, 10) == {"spool.cpu": 2}
    assert {project: (hold.by, hold.until) for project, hold in held.items()} == {
        "small": ("jobs_in_flight", None)
    }
    assert held["small"].reason == "The project runs 2 of at most 2 jobs at once."
    finish(db, next(claim for claim in claims if claim.job.id != other))
    assert taken(db, rules).job.project == "small"
    assert nothing(db, rules)


def test_the_limit_of_jobs_holds_against_many_workers_at_once(db: Database) -> None:
    rules = Rules(quotas={"*": Quota(jobs_in_flight=3)})
    batch(db, "small", 20)
    start = threading.Barrier(8)
    took: list[object] = []

    def work(name: str) -> None:
        start.wait()
        with db.begin() as tx:
            took.append(claim_next(tx, ClaimRequest(name, "cpu", name, 60.0), rules))

    threads = [threading.Thread(target=work, args=(f"wrk_{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(claim, Claim) for claim in took) == 3


def test_hours_of_a_day_hold_until_the_day_is_over(db: Database) -> None:
    rules = Rules(quotas={"small": Quota(hours_a_day=Decimal(1))})
    worker = registered(db)
    claim = _billed(db, worker, "small", samples=3600 * 16_000 // 2)
    queued(db, project="small")
    assert not _held(db, rules), "half an hour is used"
    charged = bill(worker, samples=3600 * 16_000 // 2)
    with db.begin() as tx:
        write_charge(tx, claim.job.id, 1, charged_to(charged, "small"))
    hold = _held(db, rules)["small"]
    assert hold.by == "hours_a_day"
    assert hold.until is not None
    with db.read() as tx:
        today = tx.scalar(select(quota_use.c.day))
    assert today is not None
    assert hold.until.date() == today + timedelta(days=1)
    assert nothing(db, rules)
    with db.begin() as tx:  # as the lines and the sum look a day later
        yesterday = hold.until.date() - timedelta(days=2)
        tx.execute(update(cost_lines).values(day=yesterday))
        tx.execute(update(quota_use).values(day=yesterday))
    assert taken(db, rules).job.project == "small", "at once, without a sweep"


def test_jobs_that_run_count_towards_the_hours(db: Database) -> None:
    rules = Rules(quotas={"small": Quota(hours_a_day=Decimal(1))})
    batch(db, "small", 5)
    with db.begin() as tx:
        tx.execute(update(jobs).values(audio_seconds=1500.0))
    claims = [taken(db, rules) for _ in range(3)]
    assert nothing(db, rules), "3 times 25 minutes are on their way"
    finish(db, claims[0], 1500.0, reused="job_x")
    assert taken(db, rules), "what was taken over counts for nothing"


def test_money_of_a_month_holds_until_the_month_is_over(db: Database) -> None:
    rules = Rules(quotas={"*": Quota(spend_a_month=Decimal("0.0001"))})
    worker = registered(db)
    _billed(db, worker, "small", engine_ns=2 * 10**9)  # 2 s at 0.36 an hour
    queued(db, project="small")
    queued(db, project="thrifty")
    hold = _held(db, rules)["small"]
    assert (hold.by, hold.until.day if hold.until else None) == ("spend_a_month", 1)
    assert hold.reason == "The project has spent its quota of 0.0001 for this month."
    assert [taken(db, rules).job.project, nothing(db, rules)] == ["thrifty", True]
    with db.begin() as tx:
        tx.execute(update(cost_lines).values(wasted=True))
    assert "small" not in _held(db, rules), "a lost attempt's money is not the project's"


def test_a_message_that_found_only_held_jobs_is_sent_again_when_they_may_go_on(db: Database) -> None:
    rules = Rules(quotas={"default": Quota(jobs_in_flight=0)})
    job = queued(db)
    with db.begin() as tx:
        tx.execute(text("DELETE FROM outbox"))
        tx.execute(update(jobs).values(hinted_at=seconds_from_now(0)))
    assert nothing(db, rules)
    with db.begin() as tx:
        hint_used_up(tx, job.id)
    with db.begin() as tx:
        room = count_runnable(tx, rules, 10)
        assert sweep(tx, SweepLimits(room=room)).rehinted == (), "held jobs need no message"
        room = count_runnable(tx, RULES, 10)
        assert sweep(tx, SweepLimits(room=room)).rehinted == (job.id,)


def _billed(db: Database, worker: str, project: str, **amounts: int) -> Claim:
    queued(db, project=project)
    claim = taken(db)
    with db.begin() as tx:
        write_charge(tx, claim.job.id, 1, charged_to(bill(worker, **amounts), project))
    finish(db, claim)
    return claim


def _held(db: Database, rules: Rules) -> dict[str, Hold]:
    with db.begin() as tx:
        refresh_use(tx, rules.quotas)
        return find_holds(tx, rules.quotas, ["small", "thrifty"])
