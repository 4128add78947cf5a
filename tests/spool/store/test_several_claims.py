"""Several short jobs claimed at once: in order, each once, charged as if they had come one by one."""

import threading
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from ops.testbed.rows import queued, reread
from spool.domain.jobs import JobState, Source
from spool.domain.priority import HIGH, LOW, Rules
from spool.domain.quotas import Quota
from spool.store import Database
from spool.store.queue.fair_share import UNKNOWN_SECONDS
from spool.store.queue.leases import Claim, hand_back
from spool.store.queue.scheduler import AGED_EACH, SHORT_BYTES, claim_next
from spool.tables import event_inbox, turns
from tests.spool.store.choosing import ASKER, RULES, finish, nothing, taken
from tests.spool.store.test_scheduler import placed, soon


def short(db: Database, number: int, **fields: Any) -> list[str]:
    """Jobs whose recordings have 100 kB, in the order of their places."""
    return [queued(db, source=Source("file", "file:///a.wav", 100_000), **fields).id for _ in range(number)]


def ids(claim: Claim) -> list[str]:
    return [claim.job.id, *(other.job.id for other in claim.others)]


GREEDY = replace(ASKER, most=4)


def test_several_short_jobs_are_claimed_at_once_in_their_order(db: Database) -> None:
    made = short(db, 6)
    first, rest = taken(db, request=GREEDY), taken(db, request=GREEDY)
    assert ids(first) == made[:4]
    assert ids(rest) == made[4:]
    for claim in (first, *first.others):
        row = reread(db, claim.job.id)
        assert (row.state, row.attempt, row.lease_owner) == (JobState.RUNNING, 1, ASKER.worker_id)
        finish(db, claim)
    assert [reread(db, job_id).state for job_id in made[:4]] == [JobState.DONE] * 4
    with db.read() as tx:
        began = list(tx.scalars(select(event_inbox.c.job_id).where(event_inbox.c.type == "job.started")))
    assert sorted(began) == sorted(made)


@pytest.mark.parametrize(
    ("size", "fields"),
    [(SHORT_BYTES + 1, {}), (None, {}), (100_000, {"priority": LOW}), (100_000, {"deadline": True})],
)
def test_nothing_is_claimed_with_a_long_job_or_one_of_another_class(
    db: Database, size: int | None, fields: dict[str, Any]
) -> None:
    if "deadline" in fields:
        fields = {"deadline": soon(2)}
    (before,) = short(db, 1)
    other = queued(db, source=Source("file", "file:///b.wav", size), **fields).id
    (after,) = short(db, 1)
    claims = [ids(taken(db, request=GREEDY)) for _ in range(2 if fields else 3)]
    if "deadline" in fields:
        assert claims == [[other], [before, after]]
    elif fields:
        assert claims == [[before, after], [other]]
    else:
        assert claims == [[before], [other], [after]], "and none overtakes it"


def test_a_job_that_ran_before_comes_alone(db: Database) -> None:
    first, second, third = short(db, 3)
    drained = taken(db)
    with db.begin() as tx:
        hand_back(tx, drained)
    assert ids(taken(db, request=GREEDY)) == [first]
    assert ids(taken(db, request=GREEDY)) == [second, third]


def test_several_jobs_are_one_turn_that_is_charged_in_full(db: Database) -> None:
    made = short(db, 12, project="many")
    assert ids(taken(db, request=GREEDY)) == made[:4]
    few = [queued(db, project="few").id for _ in range(2)]
    assert ids(taken(db, request=GREEDY)) == [few[0]]
    with db.read() as tx:
        row = tx.execute(select(turns).where(turns.c.project == "many")).one()
    assert (row.claims, row.served - row.start) == (4, 4 * UNKNOWN_SECONDS)
    assert taken(db, request=GREEDY).job.id == few[1], "four jobs were charged, and one of the other's"


def test_the_aged_job_is_not_stepped_over(db: Database) -> None:
    rules = Rules(aging_seconds=60)
    old = queued(db, priority=LOW).id
    placed(db, old, 3600)
    short(db, 40, priority=HIGH)
    claimed = []
    while old not in claimed:
        claimed += ids(taken(db, rules, GREEDY))
    assert len(claimed) == AGED_EACH


def test_a_project_with_a_quota_gets_one_at_a_time(db: Database) -> None:
    rules = Rules(quotas={"limited": Quota(jobs_in_flight=2)})
    short(db, 4, project="limited")
    assert [len(ids(taken(db, rules, GREEDY))) for _ in range(2)] == [1, 1]
    assert nothing(db, rules, GREEDY)


def test_many_workers_that_take_several_take_each_job_once(db: Database) -> None:
    made = short(db, 40)
    claimed: list[str] = []

    def work(number: int) -> None:
        request = replace(GREEDY, worker_id=f"wrk_{number}", name=f"w{number}")
        while True:
            with db.begin() as tx:
                claim = claim_next(tx, request, RULES)
            if not isinstance(claim, Claim):
                return
            claimed.extend(ids(claim))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == sorted(made)
