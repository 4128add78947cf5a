"""From a request to a batch: receives its manifest or lists its address, and commits the jobs of its lines.

A manifest is received on disk and written to SQL in blocks, each with its outbox lines; the relay sends them
to Redis within its window. A strict batch is read twice: once to check every line, once to create the jobs.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from sqlalchemy import Connection

from api.auth.principal import Principal
from api.middleware.log_context import set_subject
from api.presenters.batches import present_batch_detail
from api.problems import Problem
from api.services import Services
from api.submission.connections import S3Access, s3_access_of
from api.submission.intake import Intake
from api.submission.jobs import canonical_request, refuse_past
from api.submission.sources import check_source
from api.submission.uploads import Upload
from spool.domain.jobs import JobState
from spool.domain.manifest import BadLine, ManifestReport, in_blocks
from spool.domain.priority import PRIORITIES
from spool.errors import SourceMissing
from spool.failpoints import failpoint
from spool.schemas.batches import BatchDetail, BatchRequest, BatchUploadRequest
from spool.store import batches as store
from spool.store.archive.uploads import take_uploads
from spool.store.batch_progress import read_batch_progress
from spool.store.jobs import find_submitted
from spool.store.queue.quotas import find_holds
from spool.tables.batches import Batch, NewBatch

BLOCK = 1000
# The relay is woken only after this many blocks, since each time it reads a window of the outbox.
_WAKE_EACH = 5
_MANIFESTS = (".jsonl", ".ndjson", ".csv")


def load_detail(services: Services, batch_id: str) -> BatchDetail:
    """The batch as it is now."""
    set_subject({"batch_id": batch_id})
    with services.database.read() as tx:
        batch = store.get_batch(tx, batch_id)
        progress = read_batch_progress(tx, batch_id)
        held = find_holds(tx, services.settings.quotas, [batch.project])
        waiting = _list_missing(services, tx, batch_id) if progress.counts.get(JobState.QUEUED) else []
    return present_batch_detail(batch, progress, services.settings.currency, held, waiting)


def _list_missing(services: Services, tx: Connection, batch_id: str) -> list[str]:
    """What jobs of the batch are waiting for that no worker can take now."""
    state = services.fleet.read()
    return [each.waiting_for for each in state.unserved if store.waits_in(tx, batch_id, each.queue)]


def create_from_address(
    services: Services, caller: Principal, body: BatchRequest, idempotency_key: str | None
) -> tuple[BatchDetail, bool]:
    """The batch of the manifest, folder or prefix that `body` names, and whether it is new."""
    if not body.source.lower().endswith(_MANIFESTS):
        intake = Intake(services, caller, body, address=body.source)
        return _submit(services, body, intake, body.source, "", idempotency_key)
    access = s3_access_of(services, caller.project_for(body.project), body.connection)
    with _fetch(services, caller, body.source, access) as path:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        intake = Intake(services, caller, body, manifest=path)
        return _submit(services, body, intake, body.source, digest, idempotency_key)


def create_from_manifest(
    services: Services,
    caller: Principal,
    body: BatchUploadRequest,
    manifest: Upload,
    idempotency_key: str | None,
) -> tuple[BatchDetail, bool]:
    """The batch of an uploaded manifest, and whether it is new."""
    intake = Intake(services, caller, body, manifest=manifest.path)
    return _submit(services, body, intake, "manifest", manifest.sha256, idempotency_key)


@contextmanager
def _fetch(services: Services, caller: Principal, address: str, access: S3Access) -> Iterator[Path]:
    """The manifest at `address` as a local file."""
    source = access.apply(check_source(address, services.settings, caller))
    if source.kind == "file":
        yield Path(os.fsdecode(unquote_to_bytes(source.uri.removeprefix("file://"))))
        return
    if source.kind != "s3":
        raise Problem(
            422,
            "invalid_request",
            "A manifest is read from s3:// or file:// only; send any other as the body of the request.",
        )
    bucket, _, key = source.uri.removeprefix("s3://").partition("/")
    store_of_manifest = access.store(bucket)
    info = store_of_manifest.head(key)
    if info is None:
        raise SourceMissing(f"There is no object {source.uri}.")
    limit = services.settings.upload_max_bytes
    if info.size > limit:
        raise Problem(413, "too_large", f"The manifest is larger than the {limit} bytes allowed here.")
    services.upload_folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=services.upload_folder, prefix="manifest-") as folder:
        store_of_manifest.get_file(key, Path(folder) / "manifest", info.etag)
        yield Path(folder) / "manifest"


def _submit(
    services: Services,
    request: BatchUploadRequest,
    intake: Intake,
    source: str,
    content: str,
    idempotency_key: str | None,
) -> tuple[BatchDetail, bool]:
    """Check every line first if the batch is strict, then write block after block."""
    identity = json.dumps([canonical_request(request, intake.project), source, content], sort_keys=True)
    new = NewBatch(
        project=intake.project,
        name=request.name or source[:200],
        source=source,
        reuse=request.reuse,
        request_hash=hashlib.sha256(identity.encode()).hexdigest(),
        idempotency_key=idempotency_key,
        key_id=intake.caller.key_id,
        priority=PRIORITIES[request.priority],
        deadline=request.deadline,
    )
    with services.database.read() as tx:
        known = store.find_batch(tx, new)
    if known is not None and known.closed_at is not None:
        return load_detail(services, known.id), False
    if known is None:
        refuse_past(request.deadline)
    else:
        intake.uploads.batch_id = known.id
    if request.strict:
        _refuse_bad_lines(intake)
    report = ManifestReport()
    batch, created = _write(services, intake, report, new)
    if batch is None:
        raise _no_valid_line(report)
    with services.database.begin() as tx:
        store.close_batch(tx, batch.id, report)
    failpoint("batch.closed")
    return load_detail(services, batch.id), created


def _write(
    services: Services, intake: Intake, report: ManifestReport, new: NewBatch
) -> tuple[Batch | None, bool]:
    batch, created = None, False
    for number, block in enumerate(in_blocks(intake.read_jobs(report), BLOCK)):
        with services.database.begin() as tx:
            if batch is None:
                batch, created = store.create_batch(tx, new)
            known = find_submitted(tx, block, batch.id) if intake.deduplicates else {}
            fresh = [job for job in block if job.submission_sha256 not in known]
            report.unchanged += len(block) - len(fresh)
            own, lost = take_uploads(tx, batch.id, [replace(job, batch_id=batch.id) for job in fresh])
            store.add_jobs(tx, batch.id, own)
        for job in lost:
            message = "Another job took the upload meanwhile, or it was removed."
            report.add(BadLine(job.batch_line or 0, "conflict", message, job.custom_id))
        failpoint("batch.written")
        if number % _WAKE_EACH == 0:
            services.sweeper.wake()
    services.sweeper.wake()
    return batch, created


def _refuse_bad_lines(intake: Intake) -> None:
    report = ManifestReport()
    for _ in intake.read_jobs(report):
        pass
    if report.bad:
        raise _invalid(
            report,
            f"{report.bad} of {report.lines} lines are invalid. The batch is strict, so no job was created.",
        )


def _no_valid_line(report: ManifestReport) -> Problem:
    if not report.lines:
        skipped = f" {report.skipped} files there were skipped." if report.skipped else ""
        return _invalid(report, f"The manifest, folder or prefix has no recordings.{skipped}")
    return _invalid(report, f"All {report.lines} lines are invalid.")


def _invalid(report: ManifestReport, sentence: str) -> Problem:
    members: dict[str, Any] = {"lines": report.lines, "bad": report.bad, "skipped": report.skipped}
    if report.skipped:
        members["skipped_files"] = [asdict(file) for file in report.skipped_files]
    return Problem(422, "bad_lines", sentence, **members, bad_lines=list(map(asdict, report.bad_lines)))
