"""The routes of batches: submit, list, show, fetch the results, retry what failed, cancel.

`api.submission.batches` turns a request into a batch.
"""

from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from api.auth.authentication import CallerDep
from api.auth.principal import get_visible_batch
from api.delivery.batch_archive import archive_blocks
from api.delivery.batch_results import NDJSON, result_lines
from api.openapi.jobs import Cursor
from api.presenters.batches import present_batch
from api.problems import Problem
from api.services import ServicesDep
from api.submission.batches import (
    create_from_address,
    create_from_manifest,
    load_detail,
)
from api.submission.bodies import SMALL, SUBMISSION, parse_json, parse_off_loop, read_json
from api.submission.jobs import IdempotencyKey
from api.submission.uploads import receive_body, receive_upload
from spool.domain.jobs import JobState
from spool.formats import Format
from spool.schemas.batches import (
    BatchDetail,
    BatchPage,
    BatchRequest,
    BatchRetried,
    BatchUploadRequest,
)
from spool.schemas.common import Project
from spool.store import batches as store
from spool.store.batch_progress import batch_counts
from spool.store.queue.quotas import find_holds

MANIFEST_TYPES = frozenset(
    {NDJSON, "text/csv", "application/jsonl", "application/jsonlines", "application/json-lines"}
)


async def create(
    request: Request,
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
    query: Annotated[
        str | None,
        Query(
            alias="request",
            max_length=20_000,
            description="With a bare manifest as the body: name, project, options and other fields, as JSON.",
        ),
    ] = None,
) -> BatchDetail:
    """Submit a batch: a manifest (as the body or in a form), or JSON that names a manifest or a folder."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if query is not None and kind not in MANIFEST_TYPES:
        raise Problem(
            422, "invalid_request", "Send `request` in the query only with a bare manifest as the body."
        )
    limit, folder = services.settings.upload_max_bytes, services.upload_folder
    if kind == "application/json":
        body = await read_json(request, BatchRequest, SUBMISSION)
        batch, created = await run_in_threadpool(create_from_address, services, caller, body, idempotency_key)
    elif kind in MANIFEST_TYPES:
        fields = parse_json(BatchUploadRequest, (query or "{}").encode(), SMALL, "request")
        async with receive_body(request, folder, limit) as upload:
            manifest = (upload.path, upload.sha256)
            batch, created = await run_in_threadpool(
                create_from_manifest, services, caller, fields, manifest, idempotency_key
            )
    elif kind == "multipart/form-data":
        async with receive_upload(request, folder, limit) as upload:
            fields = await parse_off_loop(
                request, BatchUploadRequest, upload.request or b"{}", SUBMISSION, "request"
            )
            manifest = (upload.path, upload.sha256)
            batch, created = await run_in_threadpool(
                create_from_manifest, services, caller, fields, manifest, idempotency_key
            )
    else:
        hint = f"Send a manifest as {NDJSON} or in a form, or application/json that names a source."
        raise Problem(415, "unsupported_media_type", hint)
    response.status_code = 202 if created else 200
    response.headers["Location"] = f"/v1/batches/{batch.id}"
    return batch


def list_batches(
    services: ServicesDep,
    caller: CallerDep,
    project: Project | None = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> BatchPage:
    """Batches, newest first, a page at a time."""
    if project is not None and not caller.sees(project):
        return BatchPage(items=[], next_cursor=None)
    with services.database.read() as tx:
        page = store.list_batches(tx, caller.project or project, cursor, limit)
        counts = batch_counts(tx, [batch.id for batch in page.items])
        held = find_holds(tx, services.settings.quotas, {batch.project for batch in page.items})
    items = [present_batch(batch, counts[batch.id], held) for batch in page.items]
    return BatchPage(items=items, next_cursor=page.next_cursor)


def get_batch(services: ServicesDep, caller: CallerDep, batch_id: str) -> BatchDetail:
    """One batch: progress, speed, remaining time and cost."""
    with services.database.read() as tx:
        get_visible_batch(tx, caller, batch_id)
    return load_detail(services, batch_id)


def get_results(
    services: ServicesDep,
    caller: CallerDep,
    batch_id: str,
    include: Annotated[
        str | None, Query(pattern="^words$", description="`words`: include words with times and confidence.")
    ] = None,
    state: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None,
) -> StreamingResponse:
    """One line of JSON for each job in its current state, in the order of the manifest."""
    with services.database.read() as tx:
        batch = get_visible_batch(tx, caller, batch_id)
    lines = result_lines(services.database, services.objects, batch.id, words=include == "words", state=state)
    headers = {"Content-Disposition": f'attachment; filename="{batch.id}.jsonl"'}
    return StreamingResponse(lines, headers=headers, media_type=NDJSON)


def get_transcripts(
    services: ServicesDep,
    caller: CallerDep,
    batch_id: str,
    form: Annotated[Format, Query(alias="format", description="Format of the transcripts.")] = "txt",
) -> StreamingResponse:
    """The transcripts of all finished jobs as one zip, in which `missing.tsv` names the jobs without one."""
    with services.database.read() as tx:
        batch = get_visible_batch(tx, caller, batch_id)
    blocks = archive_blocks(services.database, services.objects, batch.id, form)
    headers = {"Content-Disposition": f'attachment; filename="{batch.id}.{form}.zip"'}
    return StreamingResponse(blocks, headers=headers, media_type="application/zip")


def retry_failed(
    services: ServicesDep, caller: CallerDep, batch_id: str, idempotency_key: IdempotencyKey = None
) -> BatchRetried:
    """Queue every failed job again. Chunks that were transcribed are kept."""
    retried = 0
    while True:
        with services.database.begin() as tx:
            batch = get_visible_batch(tx, caller, batch_id)
            if not retried and store.was_retried(tx, batch, idempotency_key):
                return BatchRetried(retried=0)
            block = store.retry_failed(tx, batch.id)
            if not block:
                store.note_retried(tx, batch, idempotency_key)
        if not block:
            return BatchRetried(retried=retried)
        retried += block
        services.sweeper.wake()


def cancel(services: ServicesDep, caller: CallerDep, batch_id: str) -> BatchDetail:
    """Cancel a batch. Queued jobs are cancelled at once, running ones stop at their next chunk."""
    with services.database.begin() as tx:
        store.cancel_batch(tx, get_visible_batch(tx, caller, batch_id).id)
    return load_detail(services, batch_id)
