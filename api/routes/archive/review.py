"""The routes of the review: passages by doubt, and marks on those that somebody checked."""

from dataclasses import asdict, dataclass
from typing import Annotated

from fastapi import Depends, Query, Request
from fastapi.concurrency import run_in_threadpool

from api.auth.authentication import CallerDep
from api.auth.principal import Principal, get_visible_job
from api.openapi.jobs import Cursor, answer, describe, json_body, problems
from api.services import ServicesDep
from api.submission.bodies import SMALL, read_json
from spool.domain.archive.review import Doubts
from spool.schemas.common import Project, Versions
from spool.schemas.examples import review as examples
from spool.schemas.review import (
    CheckRequest,
    DoubtsOut,
    Reason,
    ReviewPage,
    ReviewPassageOut,
    ReviewRecordingOut,
    ReviewRecordingPage,
)
from spool.store import jobs as store
from spool.store.transcripts import review
from spool.store.transcripts.review import (
    DoubtfulRecording,
    Reviewed,
    ReviewFilter,
    list_review,
    mark_checked,
)

LIST = describe(
    "List passages by doubt",
    answer(200, "A page of passages, the most doubtful first.", ReviewPage, examples.REVIEW_PAGE),
)

RECORDINGS = describe(
    "List recordings by doubt",
    answer(
        200, "A page of recordings, the most doubtful first.", ReviewRecordingPage, examples.RECORDING_PAGE
    ),
)

CHECK = describe(
    "Mark a passage as checked",
    answer(200, "The passage.", ReviewPassageOut, examples.CHECKED),
    problems("malformed", "not_found", "deleted", "too_large", "invalid_request"),
    openapi_extra=json_body(CheckRequest, examples.CHECK_REQUEST),
)


@dataclass(frozen=True, slots=True)
class Filter:
    """Restricts which passages or recordings are listed."""

    project: Project | None = None
    batch: Annotated[str | None, Query(max_length=64, description="Only in jobs of this batch.")] = None
    name: Annotated[
        str | None, Query(max_length=200, description="Only in recordings with this in their name.")
    ] = None
    tag: Annotated[
        str | None, Query(max_length=300, description="Only in jobs with this tag: `key` or `key=value`.")
    ] = None
    model: Annotated[str | None, Query(max_length=200, description="Only in jobs of this model.")] = None
    reason: Annotated[Reason | None, Query(description="Only what is doubtful for this reason.")] = None

    def to_job_filter(self, caller: Principal) -> store.JobFilter | None:
        """The filter; None if the caller may not see any of the jobs."""
        if self.project is not None and not caller.sees(self.project):
            return None
        tag = store.tag_of(self.tag) if self.tag else None
        return store.JobFilter(
            project=caller.project or self.project, batch=self.batch, name=self.name or None, tag=tag
        )


FilterDep = Annotated[Filter, Depends()]


def list_passages(
    services: ServicesDep,
    caller: CallerDep,
    only: FilterDep,
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
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> ReviewPage:
    """The unchecked passages of all transcripts, the most doubtful first."""
    matching = only.to_job_filter(caller)
    if matching is None:
        return ReviewPage(items=[], next_cursor=None)
    newest = versions == "newest" or (versions is None and job is None and sample is None)
    wanted = ReviewFilter(matching, only.model or None, only.reason, checked, sample, job, newest)
    with services.database.read() as tx:
        page = list_review(tx, wanted, cursor, limit)
    return ReviewPage(items=list(map(_present_passage, page.items)), next_cursor=page.next_cursor)


def list_recordings(
    services: ServicesDep,
    caller: CallerDep,
    only: FilterDep,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> ReviewRecordingPage:
    """The recordings with unchecked passages, the most doubtful first, each with its newest transcript, or
    the newest of `model`."""
    matching = only.to_job_filter(caller)
    if matching is None:
        return ReviewRecordingPage(items=[], next_cursor=None)
    with services.database.read() as tx:
        page = review.list_recordings(tx, matching, only.model or None, only.reason, cursor, limit)
    return ReviewRecordingPage(items=list(map(_present_recording, page.items)), next_cursor=page.next_cursor)


async def check(
    request: Request, services: ServicesDep, caller: CallerDep, job_id: str, passage: int
) -> ReviewPassageOut:
    """Mark a passage as checked, because its words are right, or undo that. Corrected passages count as
    checked."""
    body = await read_json(request, CheckRequest, SMALL)

    def work() -> Reviewed:
        with services.database.begin() as tx:
            job = get_visible_job(tx, caller, job_id)
            return mark_checked(tx, job.id, passage, body.author or caller.name, checked=body.checked)

    return _present_passage(await run_in_threadpool(work))


def _present_recording(one: DoubtfulRecording) -> ReviewRecordingOut:
    job = one.job
    return ReviewRecordingOut(
        job=job.id,
        name=job.name,
        project=job.project,
        model=job.options.model,
        passages=one.passages,
        unchecked=one.unchecked,
        doubt=round(one.doubt, 4),
        doubts=_present_doubts(one.doubts),
        url=f"/#/review?job={job.id}",
    )


def _present_doubts(doubts: Doubts) -> DoubtsOut:
    return DoubtsOut(**{name: round(value, 4) for name, value in asdict(doubts).items()})


def _present_passage(reviewed: Reviewed) -> ReviewPassageOut:
    job, passage = reviewed.job, reviewed.passage
    return ReviewPassageOut(
        job=job.id,
        name=job.name,
        project=job.project,
        model=job.options.model,
        passage=passage.number,
        channel=passage.channel,
        start=passage.start,
        end=passage.end,
        first_word=passage.first_word,
        last_word=passage.last_word,
        text=passage.text,
        doubt=passage.doubts.total,
        doubts=_present_doubts(passage.doubts),
        checked_by=reviewed.checked_by,
        checked_at=reviewed.checked_at,
        url=f"/#/jobs/{job.id}?t={passage.start:g}",
    )
