"""Random samples of passages, and the errors found in them.

A sample is drawn once, from a stored seed: it stays the same when more jobs end.
"""

import secrets
from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from sqlalchemy import ColumnElement, Connection, exists, func, insert, select

from spool.domain.archive.sampling import Estimate, Population, estimate, sample_size
from spool.errors import Conflict, NotFound
from spool.ids import is_id, new_id
from spool.store.archive.closed import has_closures
from spool.store.archive.versions import has_later_transcript
from spool.store.sql import Page, fetch_page, now_utc
from spool.tables import jobs
from spool.tables import review_passages as passages
from spool.tables import review_sample_passages as drawn
from spool.tables import review_samples as samples
from spool.tables.record import reader_of, values_of
from spool.tables.review import Sample, SampleScope
from spool.wer import WordErrors

MOST = 10_000
"""The most passages of a sample."""
MAX_SEED = 2**53 - 1


@dataclass(frozen=True, slots=True)
class Size:
    """How many passages there are, and how many of them to listen to."""

    population: int
    words: int
    passages: int


@dataclass(frozen=True, slots=True)
class SampleResult:
    """A sample's result so far. gone: passages whose transcript was deleted; by_model: the result for each
    model."""

    sample: Sample
    gone: int
    total: Estimate
    by_model: Mapping[str, Estimate]


def size_for(tx: Connection, scope: SampleScope, margin: float, *, closed: bool) -> Size:
    """How many passages are needed to know the rate within ± `margin`. closed: recordings of which something
    is closed count too."""
    n, p = passages.c.words, passages.c.confidence
    e = n * p
    sums = (n, e, n * n, e * e, e * n, e * (1 - p))
    row = tx.execute(
        select(func.count(), *(func.sum(each) for each in sums))
        .select_from(passages.join(jobs, jobs.c.id == passages.c.job_id))
        .where(*_within(scope, closed=closed))
    ).one()
    count, *totals = row
    population = Population(int(count), *(float(each or 0) for each in totals))
    return Size(population.passages, round(population.words), sample_size(population, margin))


def draw_sample(
    tx: Connection,
    scope: SampleScope,
    margin: float,
    author: str,
    size: int | None = None,
    seed: int | None = None,
    *,
    closed: bool,
) -> Sample:
    """Draw a sample of `size` passages, by default as many as `size_for` says, and store it. The same seed
    draws the same sample from the same passages. closed: also from recordings of which something is closed.

    Raises Conflict if there is nothing to draw from.
    """
    if size is None:
        size = size_for(tx, scope, margin, closed=closed).passages
    seed = secrets.randbelow(MAX_SEED) if seed is None else seed
    population, chosen = _draw(tx, scope, min(size, MOST), seed, closed=closed)
    sample_id = new_id("smp")
    row = tx.execute(
        insert(samples)
        .values(
            **values_of(scope, SampleScope),
            id=sample_id,
            population=population,
            margin=margin,
            seed=seed,
            size=len(chosen),
            created_at=now_utc(),
            created_by=author,
        )
        .returning(*samples.c)
    ).one()
    rows = [{"sample_id": sample_id, "job_id": job_id, "number": number} for job_id, number in chosen]
    tx.execute(insert(drawn), rows)
    return _sample_of(row)


def get_sample(tx: Connection, sample_id: str) -> Sample:
    """One sample. Raises NotFound."""
    row = None
    if is_id(sample_id, "smp"):
        row = tx.execute(select(samples).where(samples.c.id == sample_id)).one_or_none()
    if row is None:
        raise NotFound(f"There is no sample {sample_id}.")
    return _sample_of(row)


def list_samples(tx: Connection, project: str | None, cursor: str | None, limit: int) -> Page[Sample]:
    """A page of samples, newest first, of one project or of all."""
    query = select(samples)
    if project is not None:
        query = query.where(samples.c.project == project)
    return fetch_page(tx, samples, query, _sample_of, ("samples", project), cursor=cursor, limit=limit)


def has_closed_passages(tx: Connection, sample: Sample) -> bool:
    """Whether it has a passage of a recording of which something is closed by now."""
    of_sample = select(drawn.c.job_id).where(drawn.c.sample_id == sample.id)
    closed = select(jobs.c.id).where(jobs.c.id.in_(of_sample), has_closures(sample.project))
    return bool(tx.scalar(select(exists(closed))))


def result_of(tx: Connection, sample: Sample) -> SampleResult:
    """The result of the checked passages of a sample."""
    c = passages.c
    there = drawn.join(passages, (c.job_id == drawn.c.job_id) & (c.number == drawn.c.number)).join(
        jobs, jobs.c.id == drawn.c.job_id
    )
    model = jobs.c.options["model"].as_string()
    rows = tx.execute(
        select(model.label("model"), c.errors, c.words, c.checked_at)
        .select_from(there)
        .where(drawn.c.sample_id == sample.id)
    ).all()
    by_model: dict[str, list[WordErrors]] = {}
    for row in rows:
        own = by_model.setdefault(row.model, [])
        if row.checked_at is not None:
            own.append(WordErrors(row.errors, row.words))
    share = sample.population / sample.size
    size_of = {name: sum(row.model == name for row in rows) for name in by_model}
    return SampleResult(
        sample,
        sample.size - len(rows),
        estimate([each for own in by_model.values() for each in own], sample.population),
        {name: estimate(own, round(size_of[name] * share)) for name, own in sorted(by_model.items())},
    )


def _within(scope: SampleScope, *, closed: bool) -> list[ColumnElement[bool]]:
    conditions = [passages.c.project == scope.project, passages.c.first_word <= passages.c.last_word]
    if scope.batch is not None:
        conditions.append(jobs.c.batch_id == scope.batch)
    else:
        # Once for each job, not for each of its passages.
        superseded = select(jobs.c.id).where(
            jobs.c.project == scope.project, has_later_transcript(scope.model)
        )
        conditions.append(passages.c.job_id.not_in(superseded.correlate(None)))
    if not closed:
        conditions.append(~has_closures(scope.project))
    if scope.model is not None:
        conditions.append(jobs.c.options["model"].as_string() == scope.model)
    return conditions


def _draw(
    tx: Connection, scope: SampleScope, size: int, seed: int, *, closed: bool
) -> tuple[int, list[tuple[str, int]]]:
    """How many passages there are, and `size` of them, all equally likely."""
    of_jobs = passages.join(jobs, jobs.c.id == passages.c.job_id)
    counted = tx.execute(
        select(passages.c.job_id, func.count())
        .select_from(of_jobs)
        .where(*_within(scope, closed=closed))
        .group_by(passages.c.job_id)
        .order_by(passages.c.job_id)
    ).all()
    ends = list(accumulate(number for _, number in counted))
    if not ends:
        raise Conflict(f"Project {scope.project} has no passages with words here to draw a sample from.")
    wanted: dict[str, list[int]] = {}
    for place in sorted(Random(seed).sample(range(ends[-1]), min(size, ends[-1]))):  # noqa: S311 - not for secrets
        at = bisect(ends, place)
        wanted.setdefault(counted[at][0], []).append(place - (ends[at - 1] if at else 0))
    chosen: list[tuple[str, int]] = []
    for job_id, places in wanted.items():
        numbers = tx.scalars(
            select(passages.c.number)
            .select_from(of_jobs)
            .where(passages.c.job_id == job_id, *_within(scope, closed=closed))
            .order_by(passages.c.number)
        ).all()
        chosen += [(job_id, numbers[place]) for place in places]
    return ends[-1], chosen


_sample_of = reader_of(Sample)
