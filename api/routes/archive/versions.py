"""The routes of versions: transcribe a recording again, list its versions, compare two of them.

`spool.store.archive.versions` defines which jobs are versions of one recording.
"""

from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from api.auth.authentication import CallerDep
from api.auth.principal import Principal, get_visible_batch, get_visible_job
from api.openapi.jobs import Cursor, answer, describe, json_body, problems
from api.presenters.transcripts import read_transcript
from api.presenters.versions import Order, present_batch_diff, present_diff, present_version
from api.services import Services, ServicesDep
from api.submission.bodies import WITH_TEXT, read_json
from api.submission.jobs import IdempotencyKey, create_rerun
from spool.comparison import compare
from spool.errors import Conflict
from spool.schemas.examples import jobs
from spool.schemas.examples import versions as examples
from spool.schemas.jobs import JobDetail
from spool.schemas.versions import BatchDiff, DiffOut, RerunRequest, VersionList
from spool.store.archive.versions import reruns_of_batch, versions_of
from spool.store.ledger.charges import job_cost
from spool.store.transcripts.edits import edits_of

RERUN = describe(
    "Run a job's recording again",
    answer(202, "The new job, queued; the first one is not changed.", JobDetail, jobs.JOB_QUEUED),
    answer(200, "The idempotency key's first job.", JobDetail, jobs.JOB_DETAIL),
    problems(
        "malformed", "source_forbidden", "not_found", "conflict", "deleted", "too_large", "unknown_model"
    ),
    status_code=202,
    openapi_extra=json_body(RerunRequest, examples.RERUN),
)
LIST = describe(
    "List the versions of a job's recording",
    answer(200, "The jobs on the same recording, oldest first.", VersionList, examples.VERSIONS),
    problems("not_found"),
)
DIFF = describe(
    "Compare two transcripts of a recording",
    answer(200, "Where the words differ, and how much.", DiffOut, examples.DIFF),
    problems("not_found", "not_done", "conflict", "deleted"),
)

BATCH_DIFF = describe(
    "Compare a batch with later versions of its recordings",
    answer(200, "A page of its jobs that have a later version.", BatchDiff, examples.BATCH_DIFF),
    problems("not_found", "deleted"),
)


async def rerun(
    request: Request,
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    job_id: str,
    idempotency_key: IdempotencyKey = None,
) -> JobDetail:
    """Submit a job on another job's recording, with the same options except those named. The recording is not
    uploaded again."""
    body = await read_json(request, RerunRequest, WITH_TEXT)
    job, created = await run_in_threadpool(create_rerun, services, caller, job_id, body, idempotency_key)
    services.sweeper.wake()
    response.status_code = 202 if created else 200
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job


def list_versions(services: ServicesDep, caller: CallerDep, job_id: str) -> VersionList:
    """The project's jobs on the same recording: those that transcribed it again, and those whose source had
    the same bytes. The first 100."""
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
        with_costs = [(each, job_cost(tx, each.id)) for each in versions_of(tx, job)]
    return VersionList(
        recording=job.recording,
        stored=job.source_deleted_at is None,
        items=[present_version(each, cost, services.settings.currency) for each, cost in with_costs],
    )


def diff(
    services: ServicesDep,
    caller: CallerDep,
    job_id: str,
    other: Annotated[str, Query(alias="with", max_length=64, description="The other job.")],
    sort: Annotated[
        Order, Query(description="By time, or the least certain words of either version first.")
    ] = "time",
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> DiffOut:
    """Compare the words of another version with this one, which is the reference of the WER."""
    return _compare(services, caller, (job_id, other), sort, limit)


def diff_batch(
    services: ServicesDep,
    caller: CallerDep,
    batch_id: str,
    model: Annotated[
        str | None, Query(max_length=200, description="The newest version of this model, not of any.")
    ] = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=50)] = 20,
) -> BatchDiff:
    """Compare each finished job of the batch with the newest later version of its recording: words changed,
    word error rate and cost. Reads every transcript of the page."""
    with services.database.read() as tx:
        batch = get_visible_batch(tx, caller, batch_id)
        page = reruns_of_batch(tx, batch.id, model, cursor, limit)
        facts = [
            [(job, edits_of(tx, job.id), job_cost(tx, job.id)) for job in versions] for versions in page.items
        ]
    compared = [
        (
            base,
            other,
            compare(
                read_transcript(services.objects, base, base_edits),
                read_transcript(services.objects, other, other_edits),
            ).errors,
            before,
            after,
        )
        for (base, base_edits, before), (other, other_edits, after) in facts
    ]
    return present_batch_diff(compared, services.settings.currency, page.next_cursor)


def _compare(services: Services, caller: Principal, ids: tuple[str, str], sort: Order, limit: int) -> DiffOut:
    with services.database.read() as tx:
        base, other = (get_visible_job(tx, caller, each) for each in ids)
        edits = [edits_of(tx, each) for each in ids]
        same = {each.id for each in versions_of(tx, base)}
    if other.id not in same:
        raise Conflict(f"Job {other.id} is not on the recording of job {base.id}.")
    compared = compare(
        *(read_transcript(services.objects, *each) for each in zip((base, other), edits, strict=True))
    )
    return present_diff(base.id, other.id, compared, sort, limit)
