"""The routes of batches: hand in, list, look at, fetch the results, retry what failed, cancel.

A manifest goes to disk as it arrives and from there into SQL in blocks, each with its outbox lines; the relay
sends them to Redis within its window. Knows requests and the store; what a line may be is in `batch_intake`.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from api.asking import asked_words, refuse_past
from api.auth import CallerDep
from api.batch_intake import Intake, shown_bad_lines
from api.batch_results import NDJSON, result_lines
from api.batch_shown import shown_batch, shown_batch_detail
from api.caller import Caller, own_batch
from api.jobs import IdempotencyKey, parsed, small_body
from api.problems import Problem
from api.services import Services, ServicesDep
from api.sources import checked_source
from api.subject import concerns
from api.uploads import received_body, received_upload
from spool.batches import Report, in_blocks
from spool.errors import SourceMissing
from spool.failpoints import failpoint
from spool.jobs import JobState
from spool.objects import s3_store
from spool.order import PRIORITIES
from spool.store import batch_changes as changes
from spool.store import batches as store
from spool.store.quotas import holds
from spool.store.standing import batch_counts, batch_standing
from spool.wire.batches import BatchDetail, BatchPage, BatchRequest, BatchRetried, BatchUploadRequest
from spool.wire.jobs import Project

BLOCK = 1000
# Waking the relay after each block would have it look through the outbox many times for one window.
_WAKE_EACH = 5
MANIFEST_TYPES = frozenset({NDJSON, "application/jsonl", "application/jsonlines", "application/json-lines"})
_MANIFESTS = (".jsonl", ".ndjson")


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
        batch, created = await run_in_threadpool(_from_address, services, caller, body, idempotency_key)
    elif kind in MANIFEST_TYPES:
        words = parsed(BatchUploadRequest, (asked or "{}").encode(), "request")
        async with received_body(request, folder, limit) as upload:
            manifest = (upload.path, upload.sha256)
            batch, created = await run_in_threadpool(
                _from_manifest, services, caller, words, manifest, idempotency_key
            )
    elif kind == "multipart/form-data":
        async with received_upload(request, folder, limit) as upload:
            words = parsed(BatchUploadRequest, upload.request or b"{}", "request")
            manifest = (upload.path, upload.sha256)
            batch, created = await run_in_threadpool(
                _from_manifest, services, caller, words, manifest, idempotency_key
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
        own_batch(tx, caller, batch_id)
    return _detail(services, batch_id)


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
        batch = own_batch(tx, caller, batch_id)
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
            batch = own_batch(tx, caller, batch_id)
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
        changes.cancel_batch(tx, own_batch(tx, caller, batch_id).id)
    return _detail(services, batch_id)


def _detail(services: Services, batch_id: str) -> BatchDetail:
    concerns({"batch_id": batch_id})
    with services.database.read() as tx:
        batch = store.get_batch(tx, batch_id)
        standing = batch_standing(tx, batch_id)
        held = holds(tx, services.settings.quotas, [batch.project])
    return shown_batch_detail(batch, standing, services.settings.currency, held)


def _from_address(
    services: Services, caller: Caller, body: BatchRequest, idempotency_key: str | None
) -> tuple[BatchDetail, bool]:
    if not body.source.lower().endswith(_MANIFESTS):
        intake = Intake(services.settings, caller, body, address=body.source)
        return _run(services, body, intake, body.source, "", idempotency_key)
    with _fetched(services, caller, body.source) as path:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        intake = Intake(services.settings, caller, body, manifest=path)
        return _run(services, body, intake, body.source, digest, idempotency_key)


def _from_manifest(
    services: Services,
    caller: Caller,
    words: BatchUploadRequest,
    manifest: tuple[Path, str],
    idempotency_key: str | None,
) -> tuple[BatchDetail, bool]:
    path, digest = manifest
    intake = Intake(services.settings, caller, words, manifest=path)
    return _run(services, words, intake, "manifest", digest, idempotency_key)


@contextmanager
def _fetched(services: Services, caller: Caller, address: str) -> Iterator[Path]:
    """The manifest at `address` as a local file."""
    source = checked_source(address, services.settings, caller)
    if source.kind == "file":
        yield Path(os.fsdecode(unquote_to_bytes(source.uri.removeprefix("file://"))))
        return
    if source.kind != "s3":
        raise Problem(
            422, "invalid_request", "A manifest is read from s3:// or file://; send others as the body."
        )
    bucket, _, key = source.uri.removeprefix("s3://").partition("/")
    held = s3_store(services.settings, bucket)
    info = held.head(key)
    if info is None:
        raise SourceMissing(f"There is no object {source.uri}.")
    limit = services.settings.upload_max_bytes
    if info.size > limit:
        raise Problem(413, "too_large", f"The manifest is larger than the {limit} bytes allowed here.")
    services.upload_folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=services.upload_folder, prefix="manifest-") as own:
        held.get_file(key, Path(own) / "manifest", info.etag)
        yield Path(own) / "manifest"


def _run(
    services: Services,
    asked: BatchUploadRequest,
    intake: Intake,
    source: str,
    content: str,
    idempotency_key: str | None,
) -> tuple[BatchDetail, bool]:
    """Check all first if so asked, then write block after block; the batch, and whether it is new."""
    told = asked_words(asked, intake.project)
    words = json.dumps([told, source, content], sort_keys=True)
    new = store.NewBatch(
        project=intake.project,
        name=asked.name or source[:200],
        source=source,
        reuse=asked.reuse,
        request_hash=hashlib.sha256(words.encode()).hexdigest(),
        idempotency_key=idempotency_key,
        key_id=intake.caller.key_id,
        priority=PRIORITIES[asked.priority],
        deadline=asked.deadline,
    )
    with services.database.read() as tx:
        known = store.find_batch(tx, new)
    if known is not None and known.closed_at is not None:
        return _detail(services, known.id), False
    if known is None:
        refuse_past(asked.deadline)
    if asked.strict:
        _refuse_bad(intake)
    report = Report()
    batch, created = _write(services, intake, report, new)
    if batch is None:
        raise _nothing_good(report)
    with services.database.begin() as tx:
        store.close_batch(tx, batch.id, report.lines, report.bad, shown_bad_lines(report))
    failpoint("batch.closed")
    return _detail(services, batch.id), created


def _write(
    services: Services, intake: Intake, report: Report, new: store.NewBatch
) -> tuple[store.Batch | None, bool]:
    batch, created = None, False
    for number, block in enumerate(in_blocks(intake.jobs(report), BLOCK)):
        with services.database.begin() as tx:
            if batch is None:
                batch, created = store.create_batch(tx, new)
            store.add_jobs(tx, batch.id, [replace(job, batch_id=batch.id) for job in block])
        failpoint("batch.written")
        if number % _WAKE_EACH == 0:
            services.sweeper.wake()
    services.sweeper.wake()
    return batch, created


def _refuse_bad(intake: Intake) -> None:
    report = Report()
    for _ in intake.jobs(report):
        pass
    if report.bad:
        raise _bad(
            report, f"{report.bad} of {report.lines} lines are bad, and the batch is strict: none runs."
        )


def _nothing_good(report: Report) -> Problem:
    if not report.lines:
        return _bad(report, "There is no line or recording in it.")
    return _bad(report, f"None of the {report.lines} lines makes a job.")


def _bad(report: Report, sentence: str) -> Problem:
    members: dict[str, Any] = {"lines": report.lines, "bad": report.bad}
    return Problem(422, "bad_lines", sentence, **members, bad_lines=shown_bad_lines(report))
