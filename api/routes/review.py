"""The routes of the review: passages by doubt, marks on those that somebody checked, and random samples with
the error rate that they show."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query
from sqlalchemy import Connection

from api.auth.authentication import CallerDep
from api.auth.principal import Principal, get_visible_batch, get_visible_job
from api.auth.sight import SightDep, refuse_hidden
from api.queries import Cursor, JobQuery, Limit, ListedProject
from api.services import ServicesDep
from api.submission.bodies import json_body
from spool.domain.api_keys import Scope
from spool.domain.archive.closures import ClosedParts
from spool.domain.archive.review import Reason
from spool.errors import Forbidden, NotFound
from spool.schemas.common import Page, Project, Versions
from spool.schemas.review import (
    CheckRequest,
    Margin,
    ReviewPassageOut,
    ReviewRecordingOut,
    SampleOut,
    SampleRequest,
    SizeOut,
)
from spool.store.archive.closed import closed_parts
from spool.store.transcripts import review, samples
from spool.tables.review import SampleScope


@dataclass(frozen=True, slots=True)
class ReviewQuery(JobQuery):
    """Which passages or recordings are listed."""

    model: Annotated[str | None, Query(max_length=200, description="Only jobs of this model.")] = None
    reason: Annotated[Reason | None, Query(description="Only what is doubtful for this reason.")] = None


ReviewQueryDep = Annotated[ReviewQuery, Depends()]


def list_passages(
    services: ServicesDep,
    caller: CallerDep,
    sight: SightDep,
    only: ReviewQueryDep,
    sample: Annotated[str | None, Query(max_length=64, description="Only passages of this sample.")] = None,
    job: Annotated[str | None, Query(max_length=64, description="Only passages of this job.")] = None,
    checked: Annotated[
        bool, Query(description="Passages that were checked or corrected, instead of those still open.")
    ] = False,
    versions: Annotated[
        Versions | None,
        Query(
            description="`newest`: of a recording that was run again its newest transcript alone, of `model` "
            "where one is named. Default: `newest`; with `job` or `sample` `all`."
        ),
    ] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page[ReviewPassageOut]:
    """List passages by doubt.

    The unchecked passages of all transcripts, the most doubtful first; without those with closed words, and
    for keys without the scope `closed` without those of recordings of which something is closed. So a page
    may hold fewer than the limit.
    """
    newest = versions == "newest" or (versions is None and job is None and sample is None)
    wanted = review.ReviewFilter(
        only.to_filter(caller), only.model or None, only.reason, checked, sample, job, newest
    )
    with services.database.read() as tx:
        page = review.list_review(tx, wanted, cursor, limit)
        closed = closed_parts(tx, {each.job.id: each.job for each in page.items}.values())
    hidden = [each for each in page.items if _is_closed(closed, each)]
    if sight.opened:
        sight.note(services.database, {each.job.id: each.job for each in hidden}.values())
        hidden = []
    if not caller.may(Scope.CLOSED):
        # The numbers of the words and passages beside closed ones tell how many are closed.
        hidden = [each for each in page.items if closed[each.job.id]]
    items = [_present(each) for each in page.items if each not in hidden]
    return Page(items=items, next_cursor=page.next_cursor)


def list_recordings(
    services: ServicesDep,
    caller: CallerDep,
    only: ReviewQueryDep,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page[ReviewRecordingOut]:
    """List recordings by doubt.

    Those with unchecked passages, the most doubtful first, each with its newest transcript, or the newest of
    `model`. For keys without the scope `closed`, without recordings of which something is closed, so that a
    page may hold fewer than the limit.
    """
    with services.database.read() as tx:
        page = review.list_recordings(
            tx, only.to_filter(caller), only.model or None, only.reason, cursor, limit
        )
        closed = closed_parts(tx, [each.job for each in page.items])
    items = [
        ReviewRecordingOut.of(each, url=f"/#/review?job={each.job.id}")
        for each in page.items
        if caller.may(Scope.CLOSED) or not closed[each.job.id]
    ]
    return Page(items=items, next_cursor=page.next_cursor)


def check(
    services: ServicesDep,
    caller: CallerDep,
    job_id: str,
    passage: int,
    body: Annotated[CheckRequest, json_body(CheckRequest)],
) -> ReviewPassageOut:
    """Mark a passage as checked.

    Its words are right; or undo that. Corrected passages count as checked.
    """
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
    refuse_hidden(services, caller, job, "Checking its passages")
    with services.database.begin() as tx:
        author = body.author or caller.name
        return _present(review.mark_checked(tx, job.id, passage, author, checked=body.checked))


def get_size(
    services: ServicesDep,
    caller: CallerDep,
    project: Project | None = None,
    batch: Annotated[str | None, Query(max_length=64, description="Only from jobs of this batch.")] = None,
    model: Annotated[str | None, Query(max_length=200, description="Only from jobs of this model.")] = None,
    margin: Annotated[Margin, Query()] = 0.02,
) -> SizeOut:
    """Say how many passages to listen to.

    To know the word error rate within ± `margin` with 95 % confidence. For keys without the scope `closed`,
    recordings of which something is closed do not count.
    """
    with services.database.read() as tx:
        scope = _scope(tx, caller, project, batch, model)
        return SizeOut.of(samples.size_for(tx, scope, margin, closed=caller.may(Scope.CLOSED)))


def draw(
    services: ServicesDep, caller: CallerDep, body: Annotated[SampleRequest, json_body(SampleRequest)]
) -> SampleOut:
    """Draw a sample of passages.

    At random, and stored. `GET /v1/review?sample=…` lists them: listen to each, and correct or check it; the
    sample then has the error rate. For keys without the scope `closed`, none of recordings of which something
    is closed.
    """
    with services.database.begin() as tx:
        scope = _scope(tx, caller, body.project, body.batch, body.model)
        author = body.author or caller.name
        closed = caller.may(Scope.CLOSED)
        sample = samples.draw_sample(tx, scope, body.margin, author, body.passages, body.seed, closed=closed)
        return SampleOut.of(samples.result_of(tx, sample))


def list_samples(
    services: ServicesDep,
    caller: CallerDep,
    project: ListedProject,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Page[SampleOut]:
    """List samples and their error rates.

    All samples, newest first; for keys without the scope `closed` without those that have passages of
    recordings of which something is closed.
    """
    with services.database.read() as tx:
        page = samples.list_samples(tx, project, cursor, limit)
        items = [
            SampleOut.of(samples.result_of(tx, sample))
            for sample in page.items
            if caller.may(Scope.CLOSED) or not samples.has_closed_passages(tx, sample)
        ]
    return Page(items=items, next_cursor=page.next_cursor)


def get_sample(services: ServicesDep, caller: CallerDep, sample_id: str) -> SampleOut:
    """Estimate the error rate from a sample.

    The word error rate of what it was drawn from and its 95 % interval, in all and by model.
    """
    with services.database.read() as tx:
        sample = samples.get_sample(tx, sample_id)
        if not caller.sees(sample.project):
            raise NotFound(f"There is no sample {sample_id}.")
        if not caller.may(Scope.CLOSED) and samples.has_closed_passages(tx, sample):
            raise Forbidden(
                "Something is closed of recordings in this sample: it requires a key with the scope closed."
            )
        return SampleOut.of(samples.result_of(tx, sample))


def _scope(
    tx: Connection, caller: Principal, project: str | None, batch: str | None, model: str | None
) -> SampleScope:
    if batch is not None:
        owner = get_visible_batch(tx, caller, batch).project
        project = owner if project is None else project
    return SampleScope(caller.project_for(project), batch, model)


def _is_closed(closed: Mapping[str, ClosedParts], each: review.Reviewed) -> bool:
    passage = each.passage
    return closed[each.job.id].covers(passage.start_seconds, passage.end_seconds)


def _present(reviewed: review.Reviewed) -> ReviewPassageOut:
    url = f"/#/jobs/{reviewed.job.id}?t={reviewed.passage.start_seconds:g}"
    return ReviewPassageOut.of(reviewed, url=url)
