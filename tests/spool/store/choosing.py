"""Asking for jobs as workers do, in the shortest words."""

from dataclasses import replace

from ops.testbed.rows import new_job
from spool.domain import Rules
from spool.store import (
    Charge,
    Claim,
    ClaimRequest,
    Database,
    Outcome,
    add_jobs,
    claim_next,
    create_batch,
    finish_job,
)
from spool.tables.batches import NewBatch

ASKER = ClaimRequest("wrk_1", "cpu", "mini", 60.0, alone=False)
RULES = Rules()


def taken(db: Database, rules: Rules = RULES, request: ClaimRequest = ASKER) -> Claim:
    with db.begin() as tx:
        claim = claim_next(tx, request, rules)
    assert isinstance(claim, Claim)
    return claim


def nothing(db: Database, rules: Rules = RULES, request: ClaimRequest = ASKER) -> bool:
    with db.begin() as tx:
        return claim_next(tx, request, rules) is None


def finish(db: Database, claim: Claim, seconds: float = 60.0, reused: str | None = None) -> None:
    outcome = Outcome(seconds, f"jobs/{claim.job.id}/t.json", "0" * 64, 1.0, 12, reused_from=reused)
    with db.begin() as tx:
        finish_job(tx, claim, outcome)


def order(db: Database, rules: Rules = RULES) -> list[str]:
    """The ids in the order in which one worker gets them, each done before the next."""
    found = []
    with db.begin() as tx:
        claim = claim_next(tx, ASKER, rules)
    while isinstance(claim, Claim):
        finish(db, claim)
        found.append(claim.job.id)
        with db.begin() as tx:
            claim = claim_next(tx, ASKER, rules)
    return found


def batch(db: Database, project: str, number: int) -> None:
    asked = NewBatch(project, "b", "manifest", False, "0" * 64)
    lines = [new_job(project=project, batch_line=n, custom_id=str(n)) for n in range(number)]
    with db.begin() as tx:
        made, _ = create_batch(tx, asked)
        add_jobs(tx, made.id, [replace(line, batch_id=made.id) for line in lines])


def charged_to(charged: Charge, project: str) -> Charge:
    return replace(charged, project=project)
