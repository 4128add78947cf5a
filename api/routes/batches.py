"""A batch's results as lines of JSON, made while they are sent: a page of rows, then their transcripts.

No transaction is open while transcripts are fetched or the client reads slowly, and few are in memory at
once. A transcript that is gone is said on its own line; a store that does not answer ends the download short,
which the client sees as a broken transfer and never as a complete file.

The routes of batches: hand in, list, look at, fetch the results, retry what failed, cancel.

A manifest goes to disk as it arrives and from there into SQL in blocks, each with its outbox lines; the relay
sends them to Redis within its window. Knows requests and the store; what a line may be is in `batch_intake`.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from api.auth.authentication import CallerDep
from api.auth.principal import get_visible_batch
from api.presenters.batches import shown_batch
from api.presenters.jobs import shown_job
from api.problems import Problem
from api.services import ServicesDep
from api.submission.batches import (
    create_from_address,
    create_from_manifest,
    detail_of,
)
from api.submission.jobs import IdempotencyKey, parsed, small_body
from api.submission.uploads import received_body, received_upload
from spool.domain.jobs import Job, JobState
from spool.domain.manifest import in_blocks
from spool.errors import NotFound
from spool.objects import ObjectStore
from spool.schemas.batches import (
    BatchDetail,
    BatchPage,
    BatchRequest,
    BatchResult,
    BatchRetried,
    BatchUploadRequest,
    ResultError,
)
from spool.schemas.common import Project
from spool.store import Database
from spool.store import batches as changes
from spool.store import batches as store
from spool.store.batch_progress import batch_counts
from spool.store.batches import batch_jobs
from spool.store.queue.quotas import holds

NDJSON = "application/x-ndjson"

_ROWS = 500
# Transcripts fetched at once, for a store that is far away.
_AT_ONCE = 8


def result_lines(
    db: Database, objects: ObjectStore, batch_id: str, *, words: bool, state: JobState | None
) -> Iterator[bytes]:
    """One line a job, in the order of the manifest."""
    after: tuple[int, str] | None = None
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="results") as pool:
        while True:
            with db.read() as tx:
                page = batch_jobs(tx, batch_id, after, _ROWS, state)
            for few in in_blocks(page, _AT_ONCE):
                yield b"".join(pool.map(lambda job: _line(objects, job, words=words), few))
            if len(page) < _ROWS:
                return
            after = (page[-1].batch_line or 0, page[-1].id)


def _line(objects: ObjectStore, job: Job, *, words: bool) -> bytes:
    shown = shown_job(job)
    result = BatchResult(
        custom_id=job.custom_id,
        line=job.batch_line,
        job=job.id,
        name=job.name,
        source=shown.source.uri,
        tags=job.tags or {},
        state=job.state,
        audio_seconds=job.audio_seconds,
        reused_from=job.reused_from,
        error=ResultError(code=shown.error.code, message=shown.error.message) if shown.error else None,
    )
    if job.transcript_deleted_at is not None:
        told = ResultError(code="deleted", message="The transcript was deleted.")
        result = result.model_copy(update={"error": result.error or told})
    elif job.state is JobState.DONE and job.transcript_key is not None:
        result = result.model_copy(update=_heard(objects, job.transcript_key, words=words))
    return result.model_dump_json(exclude=None if words else {"words"}).encode() + b"\n"


def _heard(objects: ObjectStore, key: str, *, words: bool) -> dict[str, Any]:
    try:
        with objects.open(key) as stream:
            record = json.load(stream)
    except NotFound:
        return {
            "error": ResultError(code="not_found", message="The transcript is not in the store any more.")
        }
    return {"text": record["text"]} | ({"words": record["words"]} if words else {})


MANIFEST_TYPES = frozenset({NDJSON, "application/jsonl", "application/jsonlines", "application/json-lines"})


async def create(
    request: Request,
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
    asked: Annotated[
        str | None,
        Query(
            alias="request",
            max_length=20_000,
            description="With a bare manifest as the body: name, project, options and so on, as JSON.",
        ),
    ] = None,
) -> BatchDetail:
    """Hand in a batch: a manifest as the body or in a form, or JSON that names where the recordings lie."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if asked is not None and kind not in MANIFEST_TYPES:
        raise Problem(422, "invalid_request", "`request` in the address goes with a manifest as the body.")
    limit, folder = services.settings.upload_max_bytes, services.upload_folder
    if kind == "application/json":
        body = parsed(BatchRequest, await small_body(request))
        batch, created = await run_in_threadpool(create_from_address, services, caller, body, idempotency_key)
    elif kind in MANIFEST_TYPES:
        words = parsed(BatchUploadRequest, (asked or "{}").encode(), "request")
        async with received_body(request, folder, limit) as upload:
            manifest = (upload.path, upload.sha256)
            batch, created = await run_in_threadpool(
                create_from_manifest, services, caller, words, manifest, idempotency_key
            )
    elif kind == "multipart/form-data":
        async with received_upload(request, folder, limit) as upload:
            words = parsed(BatchUploadRequest, upload.request or b"{}", "request")
            manifest = (upload.path, upload.sha256)
            batch, created = await run_in_threadpool(
                create_from_manifest, services, caller, words, manifest, idempotency_key
            )
    else:
        told = f"Send a manifest as {NDJSON} or in a form, or application/json that names a source."
        raise Problem(415, "unsupported_media_type", told)
    response.status_code = 202 if created else 200
    response.headers["Location"] = f"/v1/batches/{batch.id}"
    return batch


def listed(
    services: ServicesDep,
    caller: CallerDep,
    project: Project | None = None,
    cursor: Annotated[str | None, Query(max_length=500, description="`next_cursor` of a page.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> BatchPage:
    """Batches, newest first, a page at a time."""
    if project is not None and not caller.sees(project):
        return BatchPage(items=[], next_cursor=None)
    with services.database.read() as tx:
        page = store.list_batches(tx, caller.project or project, cursor, limit)
        counts = batch_counts(tx, [batch.id for batch in page.items])
        held = holds(tx, services.settings.quotas, {batch.project for batch in page.items})
    items = [shown_batch(batch, counts[batch.id], held) for batch in page.items]
    return BatchPage(items=items, next_cursor=page.next_cursor)


def one(services: ServicesDep, caller: CallerDep, batch_id: str) -> BatchDetail:
    """One batch: how far it is, how fast, how long still, and for how much."""
    with services.database.read() as tx:
        get_visible_batch(tx, caller, batch_id)
    return detail_of(services, batch_id)


def results(
    services: ServicesDep,
    caller: CallerDep,
    batch_id: str,
    include: Annotated[
        str | None, Query(pattern="^words$", description="`words`: with times and confidence.")
    ] = None,
    state: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None,
) -> StreamingResponse:
    """A line of JSON for each job, in the order of the manifest, as they stand now."""
    with services.database.read() as tx:
        batch = get_visible_batch(tx, caller, batch_id)
    lines = result_lines(services.database, services.objects, batch.id, words=include == "words", state=state)
    headers = {"Content-Disposition": f'attachment; filename="{batch.id}.jsonl"'}
    return StreamingResponse(lines, headers=headers, media_type=NDJSON)


def retry_failed(
    services: ServicesDep, caller: CallerDep, batch_id: str, idempotency_key: IdempotencyKey = None
) -> BatchRetried:
    """Queue every failed job again; chunks that were decoded are kept."""
    retried = 0
    while True:
        with services.database.begin() as tx:
            batch = get_visible_batch(tx, caller, batch_id)
            if not retried and changes.was_retried(tx, batch, idempotency_key):
                return BatchRetried(retried=0)
            block = changes.retry_failed(tx, batch.id)
            if not block:
                changes.note_retried(tx, batch, idempotency_key)
        if not block:
            return BatchRetried(retried=retried)
        retried += block
        services.sweeper.wake()


def cancel(services: ServicesDep, caller: CallerDep, batch_id: str) -> BatchDetail:
    """Cancel what waits at once; running jobs stop at their next chunk. What is done stays."""
    with services.database.begin() as tx:
        changes.cancel_batch(tx, get_visible_batch(tx, caller, batch_id).id)
    return detail_of(services, batch_id)
