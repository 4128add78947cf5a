"""The routes of versions: transcribe a recording again, list its versions, compare two of them.

`spool.store.archive.versions` defines which jobs are versions of one recording.
"""

from typing import Annotated

from fastapi import Query, Response

from api.auth.authentication import CallerDep
from api.auth.principal import get_visible_batch, get_visible_job
from api.auth.sight import READER, SightDep
from api.presenters.transcripts import read_transcript
from api.presenters.versions import Order, present_batch_diff, present_diff, present_version
from api.queries import Cursor, IdempotencyKey
from api.services import ServicesDep
from api.submission.bodies import WITH_TEXT, json_body
from api.submission.jobs import create_rerun
from spool.comparison import compare
from spool.errors import Conflict
from spool.schemas.jobs import JobDetail
from spool.schemas.versions import BatchDiff, DiffOut, RerunRequest, VersionList
from spool.store.archive.closed import closed_parts
from spool.store.archive.versions import reruns_of_batch, versions_of
from spool.store.ledger.charges import job_cost
from spool.store.transcripts.edits import edits_of


def rerun(
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    job_id: str,
    body: Annotated[RerunRequest, json_body(RerunRequest, WITH_TEXT)],
    idempotency_key: IdempotencyKey = None,
) -> JobDetail:
    """Run a job's recording again.

    Submits a job on another job's recording, with the same options except those named. The recording is not
    uploaded again, and the first job is not changed.
    """
    job, created = create_rerun(services, caller, job_id, body, idempotency_key)
    services.sweeper.wake()
    response.status_code = 202 if created else 200
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job


def list_versions(services: ServicesDep, caller: CallerDep, job_id: str) -> VersionList:
    """List the versions of a job's recording.

    The project's jobs on the same recording: those that transcribed it again, and those whose source had the
    same bytes. The first 100, oldest first.
    """
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
        with_costs = [(each, job_cost(tx, each.id)) for each in versions_of(tx, job)]
        closed = closed_parts(tx, [each for each, _ in with_costs])
    return VersionList(
        recording=job.recording,
        stored=job.source_deleted_at is None,
        items=[
            present_version(each, cost, services.settings.currency, closed[each.id])
            for each, cost in with_costs
        ],
    )


def diff(
    services: ServicesDep,
    caller: CallerDep,
    sight: SightDep,
    job_id: str,
    other: Annotated[str, Query(alias="with", max_length=64, description="The other job.")],
    sort: Annotated[
        Order, Query(description="By time, or the least certain words of either version first.")
    ] = "time",
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> DiffOut:
    """Compare two transcripts of a recording.

    The words of another version with those of this one, which is the reference of the WER.
    """
    ids = (job_id, other)
    with services.database.read() as tx:
        jobs = [get_visible_job(tx, caller, each) for each in ids]
        edits = [edits_of(tx, each) for each in ids]
        same = {each.id for each in versions_of(tx, jobs[0])}
    if jobs[1].id not in same:
        raise Conflict(f"Job {other} is not on the recording of job {job_id}.")
    views = sight.look(services.database, *jobs)
    compared = compare(
        *(
            read_transcript(services.objects, job, own, views[job.id])
            for job, own in zip(jobs, edits, strict=True)
        )
    )
    return present_diff(job_id, other, compared, sort, limit)


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
    """Compare a batch with later versions of its recordings.

    Each finished job of the batch with the newest later version of its recording: words changed, word error
    rate and cost. Reads every transcript of the page.
    """
    with services.database.read() as tx:
        batch = get_visible_batch(tx, caller, batch_id)
        page = reruns_of_batch(tx, batch.id, model, cursor, limit)
        facts = [
            [(job, edits_of(tx, job.id), job_cost(tx, job.id)) for job in versions] for versions in page.items
        ]
    views = READER.look(services.database, *(job for versions in page.items for job in versions))
    compared = []
    for (base, base_edits, before), (other, other_edits, after) in facts:
        texts = (
            read_transcript(services.objects, base, base_edits, views[base.id]),
            read_transcript(services.objects, other, other_edits, views[other.id]),
        )
        compared.append((base, other, compare(*texts).errors, before, after))
    return present_batch_diff(compared, services.settings.currency, page.next_cursor)
