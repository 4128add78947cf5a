"""Versions of a recording as the API shows them. Pure."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

from api.presenters.jobs import open_options, present_cost
from spool.comparison import Comparison, Difference
from spool.domain.archive.closures import ClosedParts
from spool.domain.jobs import Job
from spool.domain.ledger import CostSums
from spool.schemas.versions import BatchDiff, ComparedJob, ComparedSums, DifferenceOut, DiffOut, VersionOut
from spool.wer import WordErrors, total_errors

Order = Literal["time", "doubt"]


def present_version(job: Job, cost: CostSums, currency: str, closed: ClosedParts) -> VersionOut:
    """One job of a recording."""
    return VersionOut.of(
        job,
        deleted=job.transcript_deleted_at is not None,
        cost=present_cost(cost, currency),
        words=None if closed else job.words,
        options=open_options(job, closed),
    )


def present_diff(base: str, other: str, compared: Comparison, sort: Order, limit: int) -> DiffOut:
    """The first `limit` differences in this order."""
    differences: Sequence[Difference] = compared.differences
    if sort == "doubt":
        differences = sorted(differences, key=lambda each: -each.doubt)
    errors = compared.errors
    return DiffOut(
        base=base,
        other=other,
        words=errors.words,
        edits=errors.edits,
        wer=_rate(errors),
        total=len(differences),
        items=list(map(DifferenceOut.of, differences[:limit])),
    )


Compared = tuple[Job, Job, WordErrors, CostSums, CostSums]
"""Two versions, the errors of the second, and what each of them cost."""


def present_batch_diff(compared: Sequence[Compared], currency: str, next_cursor: str | None) -> BatchDiff:
    """A page of compared versions, with its sums."""
    errors = total_errors(each for _, _, each, _, _ in compared)
    items = [
        ComparedJob(
            base=base.id,
            other=other.id,
            name=base.name,
            words=each.words,
            edits=each.edits,
            wer=_rate(each),
            cost_before=before.billable_cost,
            cost_after=after.billable_cost,
        )
        for base, other, each, before, after in compared
    ]
    sums = ComparedSums(
        recordings=len(compared),
        words=errors.words,
        edits=errors.edits,
        wer=_rate(errors),
        cost_before=sum((before.billable_cost for *_, before, _ in compared), Decimal(0)),
        cost_after=sum((after.billable_cost for *_, after in compared), Decimal(0)),
        currency=currency,
    )
    return BatchDiff(items=items, sums=sums, next_cursor=next_cursor)


def _rate(errors: WordErrors) -> float | None:
    return errors.rate if errors.words else None
