"""The routes of jobs: submit, list, show, cancel, retry, delete their content, fetch their phrases.

Deleting content keeps the job, its costs and a record of what was deleted when. `api.submission.jobs` turns a
request into a job.
"""

from typing import Annotated, Literal

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from api.auth.authentication import CallerDep
from api.auth.principal import get_visible_job, get_visible_job_with_cost
from api.auth.sight import SightDep, refuse_hidden
from api.openapi.document import FORM, JSON, Bodies, form
from api.presenters.jobs import present_job, present_job_detail
from api.presenters.responses import json_response
from api.problems import Problem
from api.queries import Cursor, IdempotencyKey, JobQueryDep, Limit
from api.services import ServicesDep
from api.submission.bodies import SUBMISSION, WITH_TEXT, media_type, read_json
from api.submission.jobs import create_from_source, create_from_upload, find_current_holds, load_detail
from api.submission.uploads import receive_upload
from spool.background.content_deleter import delete_content
from spool.domain.archive.typescripts import MAX_TYPESCRIPT_BYTES
from spool.domain.jobs import JobState
from spool.domain.retention import Content
from spool.errors import Conflict
from spool.schemas.common import Page, Pool, WorkerName
from spool.schemas.jobs import JobDeletion, JobDetail, JobOut, JobRequest, PhrasesOut, UploadRequest
from spool.store import jobs as store
from spool.store.archive.closed import closed_parts, closed_parts_of
from spool.store.archive.exports import exports_of
from spool.store.deletions import open_versions, refuse_deleted
from spool.store.jobs import phrases_of
from spool.store.queue.quotas import find_holds
from spool.store.transcripts.passages import read_first_words
from spool.store.transcripts.reuse import copies_of

PARTS = frozenset({"request", "transcript"})
_TYPESCRIPT = {
    "type": "string",
    "format": "binary",
    "description": "An existing transcript of up to 10 MiB to align with it, in place of the option `align`: "
    "a text in UTF-8, SRT, WebVTT or Word (.docx).",
}
BODY: Bodies = {
    JSON: JobRequest,
    FORM: form("The recording.", UploadRequest, transcript=_TYPESCRIPT),
}
LATER = {202: "No longer accessible; the object store deletes it later."}


async def create(
    request: Request,
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
) -> JobDetail:
    """Submit a job.

    Submit a job: JSON that names a source, or a form with the recording itself.
    """
    kind = media_type(request)
    if kind == "application/json":
        body = await read_json(request, JobRequest, WITH_TEXT)
        job, created = await run_in_threadpool(create_from_source, services, caller, body, idempotency_key)
    elif kind == "multipart/form-data":
        limit = services.settings.upload_max_bytes
        parts = services.upload_folder, limit, PARTS, SUBMISSION.size + MAX_TYPESCRIPT_BYTES
        async with receive_upload(request, *parts) as upload:
            job, created = await run_in_threadpool(
                create_from_upload, services, caller, upload, idempotency_key
            )
    else:
        raise Problem(415, "unsupported_media_type", "Send application/json or multipart/form-data.")
    services.sweeper.wake()
    response.status_code = 202 if created else 200
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job


def list_jobs(
    services: ServicesDep,
    caller: CallerDep,
    only: JobQueryDep,
    state: JobState | None = None,
    pool: Pool | None = None,
    worker: WorkerName | None = None,
    cursor: Cursor = None,
    limit: Limit = 50,
    first_words: Annotated[bool, Query(description="Add how each transcript begins.")] = False,
    content: Annotated[
        str | None,
        Query(pattern="^[0-9a-f]{64}$", description="Only done jobs on the recording of this SHA-256."),
    ] = None,
) -> Annotated[Response, Page[JobOut]]:
    """List jobs.

    A page at a time, newest first.
    """
    matching = only.to_filter(caller, state=state, pool=pool, worker=worker, content=content)
    with services.database.look() as tx:
        page = store.list_jobs(tx, matching, cursor, limit)
        held = find_holds(tx, services.settings.quotas, {job.project for job in page.items})
        words = read_first_words(tx, [job.id for job in page.items]) if first_words else {}
        closed = closed_parts(tx, page.items)
    waiting = services.fleet.waiting_for(page.items)
    items = [
        present_job(job, closed[job.id], held, waiting.get(job.id), words.get(job.id)) for job in page.items
    ]
    return json_response(Page[JobOut](items=items, next_cursor=page.next_cursor))


def get_job(services: ServicesDep, caller: CallerDep, job_id: str) -> Annotated[Response, JobDetail]:
    """Show a job.

    One job: its state, progress, attempts, times, cost so far and error.
    """
    with services.database.look() as tx:
        job, cost = get_visible_job_with_cost(tx, caller, job_id)
        held = find_current_holds(services, tx, job)
        files = exports_of(tx, job.id) if job.output else []
        closed = closed_parts_of(tx, job)
    waiting = services.fleet.waiting_for([job]).get(job.id)
    currency = services.settings.currency
    return json_response(present_job_detail(job, closed, cost, currency, held, waiting, files))


def cancel(services: ServicesDep, caller: CallerDep, job_id: str) -> JobDetail:
    """Cancel a job.

    Cancel a job. A queued job is cancelled at once; a running one stops at its next chunk.
    """
    with services.database.begin() as tx:
        return load_detail(services, tx, store.cancel_job(tx, get_visible_job(tx, caller, job_id).id))


def retry(
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    job_id: str,
    idempotency_key: IdempotencyKey = None,
) -> JobDetail:
    """Retry a failed or cancelled job.

    Queue a failed or cancelled job again. Chunks that were transcribed are kept.
    """
    with services.database.begin() as tx:
        get_visible_job(tx, caller, job_id)
        if idempotency_key is None:
            job, done = store.retry_job(tx, job_id), True
        else:
            job, done = store.retry_job_once(tx, job_id, idempotency_key)
        answer = load_detail(services, tx, job)
    services.sweeper.wake()
    response.status_code = 202 if done else 200
    return answer


def delete(
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    job_id: str,
    what: Annotated[
        Literal["all", "source", "transcript"],
        Query(
            description="The uploaded recording, the transcript in every format with its phrases, or both."
        ),
    ] = "all",
    copies: Annotated[
        bool,
        Query(
            description="Delete the transcript of the jobs that reused it too, and of the one that it was "
            "reused from."
        ),
    ] = False,
) -> JobDeletion:
    """Delete a job's recording or transcript.

    Permanently delete the content of a job that has ended. Deleting it again is not an error.
    """
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
        held = copies_of(tx, job) if what != "source" else []
        in_use = open_versions(tx, [job.id])
    if not job.state.terminal:
        raise Conflict(f"Job {job.id} is {job.state}; cancel it first.")
    refuse_hidden(services, caller, job, "Deleting it")
    if what == "source" and job.source.kind not in ("upload", "live"):
        raise Conflict(f"The recording of job {job.id} was not uploaded; delete it where it is stored.")
    if what == "source" and job.rerun_of is not None:
        raise Conflict(f"The recording of job {job.id} belongs to job {job.rerun_of}; delete it there.")
    content = list(Content) if what == "all" else [Content(what)]
    if job.rerun_of is not None:  # the recording is deleted with the job it belongs to
        content = [Content.TRANSCRIPT]
    elif Content.SOURCE in content and job.source.kind == "upload":
        for other in in_use.values():
            raise Conflict(f"Job {other} reruns the recording of job {job.id}; cancel it first.")
    complete = delete_content(services.database, services.objects, [job.id], content, caller.name)
    if copies and held:
        gone = delete_content(services.database, services.objects, held, [Content.TRANSCRIPT], caller.name)
        complete = complete and gone
        with services.database.read() as tx:
            held = copies_of(tx, job)
    with services.database.read() as tx:
        now, cost = get_visible_job_with_cost(tx, caller, job_id)
        files, closed = exports_of(tx, job_id), closed_parts_of(tx, now)
    shown = present_job_detail(now, closed, cost, services.settings.currency, exports=files)
    if shown.deleted is None:
        raise Conflict(f"Job {job.id} has been retried and is {now.state}; cancel it first.")
    response.status_code = 200 if complete else 202
    return JobDeletion(**dict(shown), copies=held)


def get_phrases(services: ServicesDep, caller: CallerDep, sight: SightDep, job_id: str) -> PhrasesOut:
    """Fetch a job's phrases.

    The boosted phrases of a job. The job itself shows only their number and digest. Empty if something of
    the recording is closed.
    """
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
        refuse_deleted(job, Content.TRANSCRIPT)
        boost = job.options.boost
        phrases = [] if boost is None else list(phrases_of(tx, boost.sha256))
    view = sight.look_at(services.database, job)
    return PhrasesOut(phrases=[] if view.hides else phrases)
