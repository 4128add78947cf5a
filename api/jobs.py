"""The routes of jobs: submit, list, look at, cancel, retry.

A submission commits its row and its outbox line, then wakes the sweeper, which sends it; that the broker may
be away is no concern of the request. Knows requests and the store; what a source may be is in `sources`, how
a form is read in `uploads`.
"""

import contextlib
import hashlib
import json
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from fastapi import Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ValidationError
from sqlalchemy import Connection

from api.asking import asked_words, refuse_past
from api.auth import CallerDep
from api.caller import Caller, own_job, own_job_with_cost
from api.options import judged
from api.problems import Problem, refused_fields
from api.services import Services, ServicesDep
from api.shown import shown_detail, shown_job
from api.sources import checked_source, source_name
from api.subject import concerns
from api.uploads import REQUEST_LIMIT, Upload, received_upload
from spool.errors import InvalidRequest, NotFound, StorageError
from spool.failpoints import failpoint
from spool.ids import new_id
from spool.jobs import AskedOptions, JobState
from spool.order import PRIORITIES
from spool.quotas import Hold
from spool.store import jobs as store
from spool.store.bills import NOTHING
from spool.store.costs import job_cost
from spool.store.quotas import holds
from spool.traces import current
from spool.wire.jobs import JobDetail, JobPage, JobRequest, Moment, Pool, Project, UploadRequest, WorkerName

Asked = TypeVar("Asked", bound=BaseModel)

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="Any text of your own; the same key with the same request answers with the first job.",
    ),
]


async def create(
    request: Request,
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
) -> JobDetail:
    """Submit a job: JSON that names a source, or a form with the recording itself."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        body = parsed(JobRequest, await small_body(request))
        job, created = await run_in_threadpool(_create_from_source, services, caller, body, idempotency_key)
    elif kind == "multipart/form-data":
        limit = services.settings.upload_max_bytes
        async with received_upload(request, services.upload_folder, limit) as upload:
            job, created = await run_in_threadpool(
                create_from_upload, services, caller, upload, idempotency_key
            )
    else:
        raise Problem(415, "unsupported_media_type", "Send application/json or multipart/form-data.")
    services.sweeper.wake()
    response.status_code = 202 if created else 200
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return job


def listed(
    services: ServicesDep,
    caller: CallerDep,
    state: JobState | None = None,
    project: Project | None = None,
    pool: Pool | None = None,
    worker: WorkerName | None = None,
    batch: Annotated[str | None, Query(max_length=64, description="Of this batch.")] = None,
    created_from: Annotated[Moment | None, Query(description="Created then or later (ISO 8601).")] = None,
    created_to: Annotated[Moment | None, Query(description="Created before then (ISO 8601).")] = None,
    cursor: Annotated[str | None, Query(max_length=500, description="`next_cursor` of a page.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """Jobs, newest first, a page at a time."""
    if project is not None and not caller.sees(project):
        return told(JobPage(items=[], next_cursor=None))
    wanted = store.JobFilter(
        state=state,
        project=caller.project or project,
        pool=pool,
        worker=worker,
        batch=batch,
        created_from=aware(created_from),
        created_to=aware(created_to),
    )
    with services.database.look() as tx:
        page = store.list_jobs(tx, wanted, cursor, limit)
        held = holds(tx, services.settings.quotas, {job.project for job in page.items})
    items = [shown_job(job, held) for job in page.items]
    return told(JobPage(items=items, next_cursor=page.next_cursor))


def one(services: ServicesDep, caller: CallerDep, job_id: str) -> Response:
    """One job: its state, progress, attempts, times, cost so far and error."""
    with services.database.look() as tx:
        job, cost = own_job_with_cost(tx, caller, job_id)
        held = _holds(services, tx, job)
    return told(shown_detail(job, cost, services.settings.currency, held))


def cancel(services: ServicesDep, caller: CallerDep, job_id: str) -> JobDetail:
    """Cancel a job: at once when it waits; a running one stops at its next chunk."""
    with services.database.begin() as tx:
        return _detail(services, tx, store.cancel_job(tx, own_job(tx, caller, job_id).id))


def retry(
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    job_id: str,
    idempotency_key: IdempotencyKey = None,
) -> JobDetail:
    """Queue a failed or cancelled job again; chunks that were decoded are kept."""
    with services.database.begin() as tx:
        own_job(tx, caller, job_id)
        if idempotency_key is None:
            job, done = store.retry_job(tx, job_id), True
        else:
            job, done = store.retry_job_once(tx, job_id, idempotency_key)
        answer = _detail(services, tx, job)
    services.sweeper.wake()
    response.status_code = 202 if done else 200
    return answer


def aware(moment: datetime | None) -> datetime | None:
    """The moment in UTC; one without a zone is meant so."""
    if moment is None or moment.tzinfo is None:
        return moment and moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidRequest("The time lies outside the calendar.") from None


def _create_from_source(
    services: Services, caller: Caller, body: JobRequest, idempotency_key: str | None
) -> tuple[JobDetail, bool]:
    source = checked_source(body.source, services.settings, caller)
    options = _options(services, body)
    name = body.name or source_name(source)
    new = _new_job(services, caller, body, options, source, name, idempotency_key)
    return _commit(services, new)


def create_from_upload(
    services: Services, caller: Caller, upload: Upload, idempotency_key: str | None
) -> tuple[JobDetail, bool]:
    """Store the recording, then make its job as the form's `request` says; whether it is a new one."""
    body = parsed(UploadRequest, upload.request or b"{}", "request")
    caller.project_for(body.project)  # refused before anything is stored
    options = _options(services, body)
    job_id = new_id("job")
    key = f"jobs/{job_id}/source"
    failpoint("upload.received")
    # The object comes first: a job whose recording is not there yet could be claimed and fail.
    stored = services.objects.put_file(key, upload.path, upload.content_type)
    failpoint("create.stored")
    source = store.Source(kind="upload", uri=key, size=upload.size, etag=stored.etag)
    name = body.name or upload.name
    new = _new_job(services, caller, body, options, source, name, idempotency_key, upload.sha256, job_id)
    try:
        job, created = _commit(services, new)
    except Exception:
        # Where the connection broke in the commit only the row can tell whether there is a job.
        with contextlib.suppress(StorageError):
            _drop_orphan(services, job_id, key)
        raise
    if not created:
        services.objects.delete(key)
    return job, created


def _drop_orphan(services: Services, job_id: str, key: str) -> None:
    try:
        with services.database.read() as tx:
            store.get_job(tx, job_id)
    except NotFound:
        services.objects.delete(key)


def _new_job(
    services: Services,
    caller: Caller,
    body: UploadRequest,
    options: AskedOptions,
    source: store.Source,
    name: str,
    idempotency_key: str | None,
    content: str = "",
    job_id: str | None = None,
) -> store.NewJob:
    project = caller.project_for(body.project)
    asked = json.dumps([asked_words(body, project), content], sort_keys=True)
    return store.NewJob(
        id=job_id,
        source=source,
        options=options.kept(),
        phrases=options.phrases,
        name=name,
        project=project,
        pool=body.pool or services.settings.pool,
        worker=body.worker,
        tags=body.tags,
        reuse=body.reuse,
        idempotency_key=idempotency_key,
        request_hash=hashlib.sha256(asked.encode()).hexdigest(),
        key_id=caller.key_id,
        priority=PRIORITIES[body.priority],
        deadline=body.deadline,
        traceparent=current().header,
    )


def _commit(services: Services, new: store.NewJob) -> tuple[JobDetail, bool]:
    with services.database.begin() as tx:
        job, created = store.create_job(tx, new)
        concerns(job.ids)
        if created:
            refuse_past(new.deadline)
        cost = NOTHING if created else job_cost(tx, job.id).sums
        held = _holds(services, tx, job)
    failpoint("create.committed")
    return shown_detail(job, cost, services.settings.currency, held), created


def _detail(services: Services, tx: Connection, job: store.Job) -> JobDetail:
    sums, held = job_cost(tx, job.id).sums, _holds(services, tx, job)
    return shown_detail(job, sums, services.settings.currency, held)


def _holds(services: Services, tx: Connection, job: store.Job) -> dict[str, Hold]:
    """Why the job's project is held, if it is, and the job waits."""
    return holds(tx, services.settings.quotas, [job.project]) if job.state is JobState.QUEUED else {}


def told(answer: BaseModel) -> Response:
    """An answer as it is, at once: FastAPI would send it to a thread to be looked at again."""
    return Response(answer.model_dump_json(), media_type="application/json")


def _options(services: Services, body: UploadRequest) -> AskedOptions:
    try:
        return judged(services.settings, body.options)
    except ValidationError as error:
        raise refused_fields(error.errors(), "options") from None


async def small_body(request: Request) -> bytes:
    """The body of a request that is JSON. Raises `Problem` 413 when it is larger than such a one can be."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > REQUEST_LIMIT:
            raise Problem(413, "too_large", f"The request is larger than {REQUEST_LIMIT} bytes.")
    return bytes(body)


def parsed(kind: type[Asked], body: bytes, *where: str) -> Asked:
    """The JSON in `body` as a `kind`. Raises `Problem`; `where` leads its fields."""
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise Problem(400, "invalid_request", "The request is not JSON.") from None
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise refused_fields(error.errors(), *where) from None
