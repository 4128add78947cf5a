"""The routes of batches: submit, list, show, fetch the results, retry what failed, cancel.

`api.submission.batches` turns a request into a batch.
"""

from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from api.auth.authentication import CallerDep
from api.auth.principal import get_visible_batch
from api.auth.sight import SightDep
from api.delivery.batch_archive import archive_blocks
from api.delivery.batch_results import NDJSON, result_lines
from api.openapi.document import FORM, JSON, Bodies, form
from api.presenters.batches import present_batch
from api.problems import Problem
from api.queries import Cursor, IdempotencyKey, Limit, ListedProject, Subtitles
from api.services import ServicesDep
from api.submission.batches import create_from_address, create_from_manifest, load_detail
from api.submission.bodies import SMALL, SUBMISSION, media_type, parse_json, parse_off_loop, read_json
from api.submission.uploads import receive_body, receive_upload
from spool.domain.jobs import JobState
from spool.formats import Format, check_subtitles
from spool.schemas.batches import BatchDetail, BatchOut, BatchRequest, BatchRetried, BatchUploadRequest
from spool.schemas.common import Page
from spool.store import batches as store
from spool.store.batch_progress import batch_counts
from spool.store.queue.quotas import find_holds

_LINES = {"type": "string", "description": "One source per line, as JSON."}
_ROWS = {"type": "string", "description": "One source per row, under a line of names."}
_MANIFESTS = {
    **dict.fromkeys((NDJSON, "application/jsonl", "application/jsonlines", "application/json-lines"), _LINES),
    "text/csv": _ROWS,
}
BODY: Bodies = {**_MANIFESTS, JSON: BatchRequest, FORM: form("The manifest.", BatchUploadRequest)}


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
    """Submit a batch.

    Submit a batch: a manifest (as the body or in a form), or JSON that names a manifest or a folder.
    """
    kind = media_type(request)
    if query is not None and kind not in _MANIFESTS:
        raise Problem(
            422, "invalid_request", "Send `request` in the query only with a bare manifest as the body."
        )
    limit, folder = services.settings.upload_max_bytes, services.upload_folder
    if kind == JSON:
        body = await read_json(request, BatchRequest, SUBMISSION)
        batch, created = await run_in_threadpool(create_from_address, services, caller, body, idempotency_key)
    elif kind in _MANIFESTS:
        fields = parse_json(BatchUploadRequest, (query or "{}").encode(), SMALL, "request")
        async with receive_body(request, folder, limit) as upload:
            batch, created = await run_in_threadpool(
                create_from_manifest, services, caller, fields, upload, idempotency_key
            )
    elif kind == FORM:
        async with receive_upload(request, folder, limit) as upload:
            fields = await parse_off_loop(
                request, BatchUploadRequest, upload.request or b"{}", SUBMISSION, "request"
            )
            batch, created = await run_in_threadpool(
                create_from_manifest, services, caller, fields, upload, idempotency_key
            )
    else:
        hint = f"Send a manifest as {NDJSON} or in a form, or application/json that names a source."
        raise Problem(415, "unsupported_media_type", hint)
    response.status_code = 202 if created else 200
    response.headers["Location"] = f"/v1/batches/{batch.id}"
    return batch


def list_batches(
    services: ServicesDep, project: ListedProject, cursor: Cursor = None, limit: Limit = 50
) -> Page[BatchOut]:
    """List batches.

    A page at a time, newest first.
    """
    with services.database.read() as tx:
        page = store.list_batches(tx, project, cursor, limit)
        counts = batch_counts(tx, [batch.id for batch in page.items])
        held = find_holds(tx, services.settings.quotas, {batch.project for batch in page.items})
    items = [present_batch(batch, counts[batch.id], held) for batch in page.items]
    return Page(items=items, next_cursor=page.next_cursor)


def get_batch(services: ServicesDep, caller: CallerDep, batch_id: str) -> BatchDetail:
    """Show a batch.

    One batch: progress, speed, remaining time and cost.
    """
    with services.database.read() as tx:
        get_visible_batch(tx, caller, batch_id)
    return load_detail(services, batch_id)


def get_results(
    services: ServicesDep,
    caller: CallerDep,
    sight: SightDep,
    batch_id: str,
    include: Annotated[
        str | None, Query(pattern="^words$", description="`words`: include words with times and confidence.")
    ] = None,
    state: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None,
) -> StreamingResponse:
    """Fetch a batch's results.

    One line of JSON for each job in its current state, in the order of the manifest.
    """
    with services.database.read() as tx:
        batch = get_visible_batch(tx, caller, batch_id)
    lines = result_lines(
        services.database, services.objects, batch.id, sight, words=include == "words", state=state
    )
    headers = {"Content-Disposition": f'attachment; filename="{batch.id}.jsonl"'}
    return StreamingResponse(lines, headers=headers, media_type=NDJSON)


def get_transcripts(
    services: ServicesDep,
    caller: CallerDep,
    sight: SightDep,
    batch_id: str,
    form: Annotated[Format, Query(alias="format", description="Format of the transcripts.")] = "txt",
    subtitles: Subtitles = None,
) -> StreamingResponse:
    """Fetch a batch's transcripts as a zip.

    The transcripts of all finished jobs as one zip, in which `missing.tsv` names the jobs without one.
    """
    with services.database.read() as tx:
        batch = get_visible_batch(tx, caller, batch_id)
    check_subtitles(form, subtitles)
    blocks = archive_blocks(services.database, services.objects, batch.id, sight, form, subtitles)
    headers = {"Content-Disposition": f'attachment; filename="{batch.id}.{form}.zip"'}
    return StreamingResponse(blocks, headers=headers, media_type="application/zip")


def retry_failed(
    services: ServicesDep, caller: CallerDep, batch_id: str, idempotency_key: IdempotencyKey = None
) -> BatchRetried:
    """Retry a batch's failed jobs.

    Queue every failed job again. Chunks that were transcribed are kept.
    """
    retried, last = 0, -1
    while True:
        with services.database.begin() as tx:
            batch = get_visible_batch(tx, caller, batch_id)
            if not retried and store.was_retried(tx, batch, idempotency_key):
                return BatchRetried(retried=0)
            block = store.retry_failed(tx, batch.id, last)
            if not block:
                store.note_retried(tx, batch, idempotency_key)
        if not block:
            return BatchRetried(retried=retried)
        retried, last = retried + len(block), block[-1]
        services.sweeper.wake()


def cancel(services: ServicesDep, caller: CallerDep, batch_id: str) -> BatchDetail:
    """Cancel a batch.

    Cancel a batch. Queued jobs are cancelled at once, running ones stop at their next chunk.
    """
    with services.database.begin() as tx:
        store.cancel_batch(tx, get_visible_batch(tx, caller, batch_id).id)
    return load_detail(services, batch_id)
