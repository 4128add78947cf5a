"""Versions of a recording as the API shows them. Pure."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Literal

from api.presenters.jobs import present_cost
from spool.comparison import Comparison, Difference
from spool.domain.jobs import Job
from spool.domain.ledger import CostSums
from spool.domain.transcript import Word
from spool.schemas.versions import (
    BatchDiff,
    ComparedJob,
    ComparedSums,
    ComparedWord,
    DifferenceOut,
    DiffOut,
    VersionOut,
)
from spool.wer import WordErrors, total_errors

Order = Literal["time", "doubt"]


def present_version(job: Job, cost: CostSums, currency: str) -> VersionOut:
    """One job of a recording."""
    return VersionOut(
        job=job.id,
        state=job.state,
        model=job.options.model,
        options=job.options,
        submitted_by=job.key_id,
        created_at=job.created_at,
        finished_at=job.finished_at,
        words=job.words,
        deleted=job.transcript_deleted_at is not None,
        cost=present_cost(cost, currency),
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
        items=[_present_difference(each) for each in differences[:limit]],
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


def _present_difference(difference: Difference) -> DifferenceOut:
    return DifferenceOut(
        channel=difference.channel,
        start=difference.start,
        end=difference.end,
        doubt=round(difference.doubt, 4),
        base=_words(difference.base),
        other=_words(difference.other),
    )


def _words(words: Iterable[Word]) -> list[ComparedWord]:
    return [
        ComparedWord(text=word.text, start=word.start, end=word.end, confidence=word.confidence)
        for word in words
    ]
