"""The routes of jobs: submit, list, look at, cancel, retry.

A submission commits its row and its outbox line, then wakes the sweeper, which sends it; that the broker may
be away is no concern of the request. Knows requests and the store; what a source may be is in `sources`, how
a form is read in `uploads`.

What requests for jobs and for batches have in common: how they are told apart, and past deadlines.

What a request may ask of the search: judged by the settings.

Jobs and the lines of batches are judged alike. Knows names of models, not what they are.
"""

import contextlib
import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from fastapi import Header, Request
from pydantic import BaseModel, ValidationError
from sqlalchemy import Connection

from api.auth.principal import Principal
from api.middleware.log_context import concerns
from api.presenters.jobs import shown_detail
from api.problems import Problem, refused_fields
from api.services import Services
from api.submission.sources import checked_source, source_name
from api.submission.uploads import REQUEST_LIMIT, Upload
from spool.domain.jobs import Job, JobState, Source
from spool.domain.ledger import NOTHING
from spool.domain.options import AskedOptions
from spool.domain.priority import PRIORITIES
from spool.domain.quotas import Hold
from spool.errors import NotFound, StorageError, UnknownModel
from spool.failpoints import failpoint
from spool.ids import new_id
from spool.schemas.batches import BatchUploadRequest
from spool.schemas.jobs import JobDetail, JobRequest, UploadRequest
from spool.settings import Settings
from spool.store import jobs as store
from spool.store.ledger.charges import job_cost
from spool.store.queue.quotas import holds
from spool.tracing import current

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


def create_from_source(
    services: Services, caller: Principal, body: JobRequest, idempotency_key: str | None
) -> tuple[JobDetail, bool]:
    """The job of the source that `body` names; whether it is a new one."""
    source = checked_source(body.source, services.settings, caller)
    options = _options(services, body)
    name = body.name or source_name(source)
    new = _new_job(services, caller, body, options, source, name, idempotency_key)
    return _commit(services, new)


def create_from_upload(
    services: Services, caller: Principal, upload: Upload, idempotency_key: str | None
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
    source = Source(kind="upload", uri=key, size=upload.size, etag=stored.etag)
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
    caller: Principal,
    body: UploadRequest,
    options: AskedOptions,
    source: Source,
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
        cost = NOTHING if created else job_cost(tx, job.id)
        held = holds_of(services, tx, job)
    failpoint("create.committed")
    return shown_detail(job, cost, services.settings.currency, held), created


def detail_of(services: Services, tx: Connection, job: Job) -> JobDetail:
    """The job as the API shows it, with its cost so far and why it is held."""
    sums, held = job_cost(tx, job.id), holds_of(services, tx, job)
    return shown_detail(job, sums, services.settings.currency, held)


def holds_of(services: Services, tx: Connection, job: Job) -> dict[str, Hold]:
    """Why the job's project is held, if it is, and the job waits."""
    return holds(tx, services.settings.quotas, [job.project]) if job.state is JobState.QUEUED else {}


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


_LATER = {"priority": "normal", "deadline": None}


def asked_words(asked: UploadRequest | BatchUploadRequest, project: str) -> dict[str, Any]:
    """What was asked, for its hash. Fields that came later are left out where nothing was said of them, so
    that a repeat of an earlier request stays one."""
    json_response = asked.model_dump(mode="json") | {"project": project}
    return {
        name: value for name, value in json_response.items() if name not in _LATER or value != _LATER[name]
    }


def refuse_past(deadline: datetime | None) -> None:
    """Raise `Problem` for a deadline that nothing can make."""
    if deadline is not None and deadline <= datetime.now(UTC):
        raise refused_fields([{"loc": ("deadline",), "msg": "lies in the past"}])


def judged(settings: Settings, *json_response: Mapping[str, Any]) -> AskedOptions:
    """The options of `told`, the later ones over the earlier, over the server's own.

    Raises pydantic's ValidationError, and UnknownModel.
    """
    asked: dict[str, Any] = {"model": settings.default_model}
    for each in json_response:
        asked |= each
    known = {"language_models": sorted(settings.language_models)}
    options = AskedOptions.model_validate(asked, context=known)
    if options.model not in settings.models:
        raise UnknownModel(
            f"There is no model {options.model!r}; known here: {', '.join(sorted(settings.models))}."
        )
    return options
