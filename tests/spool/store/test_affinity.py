"""Jobs whose model a worker has in memory go first, among those that stand side by side."""

import pytest

from ops.testbed.rows import queued
from spool.domain import HIGH, NORMAL, JobOptions
from spool.store import LOOK_AHEAD, Claim, ClaimRequest, Database, Passed, claim_next
from tests.spool.store.choosing import RULES


def wants(db: Database, *models: str, **fields: object) -> list[str]:
    return [queued(db, options=JobOptions(model=model), **fields).id for model in models]


def taken(db: Database, *models: str) -> Claim:
    with db.begin() as tx:
        claim = claim_next(tx, ClaimRequest("wrk_1", "cpu", "mini", 60.0, models=frozenset(models)), RULES)
    assert isinstance(claim, Claim)
    return claim


def test_a_job_of_a_model_in_memory_goes_first_and_says_whom_it_passed(db: Database) -> None:
    jobs = wants(db, "large", "small", "large", "large", "small")
    claim = taken(db, "small", "other")
    assert (claim.job.id, claim.passed) == (jobs[1], Passed(2, 3))
    assert (taken(db, "small").job.id, taken(db).job.id) == (jobs[4], jobs[0])
    claim = taken(db, "small")  # nobody wants it any more
    assert (claim.job.id, claim.passed) == (jobs[2], None)


@pytest.mark.parametrize("models", [("large",), ("unknown",), ()])
def test_whose_turn_it_is_goes_where_it_suits_or_nothing_does(db: Database, models: tuple[str, ...]) -> None:
    jobs = wants(db, "large", "small")
    claim = taken(db, *models)
    assert (claim.job.id, claim.passed) == (jobs[0], None)


def test_neither_class_nor_project_is_passed_over(db: Database) -> None:
    (low,) = wants(db, "small", priority=NORMAL)
    (high,) = wants(db, "large", priority=HIGH)
    assert taken(db, "small").job.id == high
    assert taken(db, "small").job.id == low


def test_it_looks_no_further_than_the_first_few(db: Database) -> None:
    jobs = wants(db, *["large"] * LOOK_AHEAD, "small")
    assert taken(db, "small").job.id == jobs[0]
    assert taken(db, "small").job.id == jobs[-1]
