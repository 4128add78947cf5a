"""From a manifest or a listing to jobs: checks each line like a single submission and reports the invalid
ones.

A manifest is received on disk and written to SQL in blocks, each with its outbox lines; the relay sends them
to Redis within its window. A strict batch is read twice: once to check every line, once to create the jobs.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from pydantic import ValidationError
from sqlalchemy import Connection

from api.auth.principal import Principal
from api.middleware.log_context import set_subject
from api.presenters.batches import present_batch_detail
from api.problems import Problem
from api.services import Services
from api.submission.connections import Reach, reach_of
from api.submission.direct import UploadLookup
from api.submission.glossaries import GlossaryLookup, LanguageModelLookup
from api.submission.jobs import (
    canonical_request,
    head_of,
    reader_of,
    refuse_past,
    requirement_of,
    resolve_options,
)
from api.submission.listing import custom_id_of, list_recordings
from api.submission.outputs import check_output, output_of, place_of
from api.submission.sources import check_source, source_name
from spool.domain.fleet.routing import Route
from spool.domain.jobs import JobState, Source
from spool.domain.manifest import LINES, BadLine, CustomIds, Report, SkippedFile, in_blocks, manifest_lines
from spool.domain.options import AskedOptions
from spool.domain.priority import PRIORITIES, PriorityName
from spool.errors import InvalidRequest, SourceMissing, SpoolError, first_fault
from spool.failpoints import failpoint
from spool.schemas.batches import BatchDetail, BatchRequest, BatchUploadRequest
from spool.store import batches as store
from spool.store.archive.uploads import SCHEME, take_uploads, with_upload
from spool.store.batch_progress import batch_progress
from spool.store.jobs import NewJob
from spool.store.queue.quotas import find_holds
from spool.tracing import current

LINES_A_TURN = 200
"""Lines of one manifest that are read before another manifest has its turn."""


class Intake:
    """The lines of one request as jobs: those of the file `manifest`, or a listing of `address`."""

    def __init__(
        self,
        services: Services,
        caller: Principal,
        request: BatchUploadRequest,
        *,
        manifest: Path | None = None,
        address: str = "",
    ) -> None:
        self._settings = services.settings
        self._fleet = services.fleet
        self._default_model = services.fleet.default()
        self._checked: set[tuple[str, str | None, str | None]] = set()
        self.caller = caller
        self.project = caller.project_for(request.project)
        self._request = request
        self.reach = reach_of(services, self.project, request.connection, address or "s3://")
        self._manifest = manifest
        self._address = address
        # A listing waits for a disk or a bucket, and nobody else should have to.
        self._turn = services.manifest_turn if manifest is not None else nullcontext()
        self._output = None
        if request.output is not None:
            with services.database.read() as tx:
                self._output = check_output(tx, services.settings, self.project, request.output)
        self.uploads = UploadLookup(services, caller, self.project)
        self._traceparent = current().header
        self._glossaries = GlossaryLookup(services.database, self.project)
        configured = services.settings.language_models
        self._language_models = LanguageModelLookup(services.database, configured, self.project)
        self._defaults: dict[str, Any] = request.options
        # Invalid defaults are an error of the request, not of each line. Their phrases are read once: there
        # may be ten thousand of them, for a million lines.
        boost = self.options({}).boost
        if request.options.get("align") is not None:
            raise InvalidRequest(
                "options: align: a transcript belongs to one recording; put it into that recording's line."
            )
        if request.options.get("boost") is not None:
            self._defaults = request.options | {"boost": boost}

    def jobs(self, report: Report) -> Iterator[NewJob]:
        """The jobs in order, as they are read; `report` counts the lines and keeps the invalid ones.

        Raises InvalidRequest for too many lines and whatever listing the address raises.
        """
        seen, lines = _SeenLines(), self._lines(report)
        while True:
            with self._turn:
                read = list(islice(lines, LINES_A_TURN))
                self.uploads.read(line.source for _, line in read if isinstance(line, _Line))
                jobs = [
                    line if isinstance(line, BadLine) else self._job(number, line, seen)
                    for number, line in read
                ]
            for job in jobs:
                if isinstance(job, BadLine):
                    report.add(job)
                else:
                    yield job
            if len(read) < LINES_A_TURN:
                return

    def options(self, own: dict[str, Any]) -> AskedOptions:
        """The line's options over the batch's over the server's. Raises InvalidRequest and UnknownModel."""
        named = self._language_models
        layers = [named.with_version(self._glossaries.with_phrases(layer)) for layer in (self._defaults, own)]
        try:
            options = resolve_options(
                self._settings, self._default_model, *layers, language_models=named.versions
            )
        except ValidationError as error:
            raise InvalidRequest(first_fault(error, "options")) from None
        model, reader, request = options.model, reader_of(options), self._request
        asked = model, reader, head_of(options)
        if asked not in self._checked:  # the fleet is asked once for each model of a batch
            requires = requirement_of(self._settings, model, request.requires)
            route = Route(request.pool, request.worker, requires=requires, reader=reader)
            self._fleet.check(route, model, head_of(options))
            self._checked.add(asked)
        return options

    def build_listed_job(self, place: str, source: Source) -> NewJob | BadLine:
        """The job of one recording, found at `place` below the address and not part of any batch."""
        job = self._job(1, _Line(custom_id_of(place), source, place=place), _SeenLines())
        return job if isinstance(job, BadLine) else replace(job, batch_line=None)

    def _lines(self, report: Report) -> Iterator[tuple[int, "_Line | BadLine"]]:
        if self._manifest is not None:
            with self._manifest.open("rb") as stream:
                for number, line in manifest_lines(stream, report):
                    if isinstance(line, BadLine):
                        yield number, line
                        continue
                    custom_id = line.custom_id or f"line-{number}"
                    fields = (line.name, line.options, line.tags, line.priority)
                    yield number, _Line(custom_id, line.source, *fields)
            return
        for recording in list_recordings(self._address, self.reach, self.caller):
            if isinstance(recording, SkippedFile):
                report.skip(recording)
                continue
            report.lines += 1
            if report.lines > LINES:
                raise InvalidRequest(f"A batch has at most {LINES} recordings; submit several batches.")
            custom_id = custom_id_of(recording.place)
            if isinstance(recording.source, Source):
                yield report.lines, _Line(custom_id, recording.source, place=recording.place)
            else:
                refused = recording.source
                yield report.lines, BadLine(report.lines, refused.code, refused.message, custom_id)

    def _job(self, number: int, line: "_Line", seen: "_SeenLines") -> NewJob | BadLine:
        upload, source = None, line.source
        try:
            if isinstance(source, str) and source.startswith(SCHEME):
                upload = self.uploads.find(source)
                source = Source("upload", upload.key)
            elif isinstance(source, str):
                source = self.reach.apply(check_source(source, self._settings, self.caller))
            options = self.options(line.options)
        except SpoolError as error:
            return BadLine(number, error.code, error.message, line.custom_id)
        if upload is not None and upload.id in seen.uploads:
            message = "An earlier line of this batch names the same upload."
            return BadLine(number, "conflict", message, line.custom_id)
        if not seen.custom_ids.first(line.custom_id):
            message = "An earlier line of this batch has the same custom_id."
            return BadLine(number, "duplicate_custom_id", message, line.custom_id)
        if upload is not None:
            seen.uploads.add(upload.id)
        name = line.name or (source_name(source) if upload is None else upload.name)
        place = line.place or place_of(source, self._settings, name)
        new = NewJob(
            source=source,
            options=options.kept(),
            phrases=options.phrases,
            typescript=options.typescript,
            name=name,
            project=self.project,
            key_id=self.caller.key_id,
            traceparent=self._traceparent,
            pool=self._request.pool,
            worker=self._request.worker,
            requires=requirement_of(self._settings, options.model, self._request.requires),
            reuse=self._request.reuse,
            batch_line=number,
            custom_id=line.custom_id,
            tags=self._request.tags | line.tags,
            priority=PRIORITIES[line.priority or self._request.priority],
            deadline=self._request.deadline,
            output=output_of(self._output, name, place),
        )
        return new if upload is None else with_upload(upload, new)


@dataclass(frozen=True, slots=True)
class _Line:
    """A line whose options, and unless it was listed its source, have yet to be checked."""

    custom_id: str
    source: str | Source
    name: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    priority: PriorityName | None = None
    place: str | None = None
    """Its path below the address that was listed."""


@dataclass(slots=True)
class _SeenLines:
    """Custom ids and uploads that earlier lines of the batch use."""

    custom_ids: CustomIds = field(default_factory=CustomIds)
    uploads: set[str] = field(default_factory=set)


def present_bad_lines(report: Report) -> list[dict[str, Any]]:
    """The invalid lines as they are stored and sent."""
    return [asdict(bad) for bad in report.bad_lines]


BLOCK = 1000
# The relay is woken only after this many blocks, since each time it reads a window of the outbox.
_WAKE_EACH = 5
_MANIFESTS = (".jsonl", ".ndjson", ".csv")


def load_detail(services: Services, batch_id: str) -> BatchDetail:
    """The batch as it is now."""
    set_subject({"batch_id": batch_id})
    with services.database.read() as tx:
        batch = store.get_batch(tx, batch_id)
        progress = batch_progress(tx, batch_id)
        held = find_holds(tx, services.settings.quotas, [batch.project])
        waiting = _waiting_for(services, tx, batch_id) if progress.counts.get(JobState.QUEUED) else []
    return present_batch_detail(batch, progress, services.settings.currency, held, waiting)


def _waiting_for(services: Services, tx: Connection, batch_id: str) -> list[str]:
    """What jobs of the batch are waiting for that no worker can take now."""
    state = services.fleet.read()
    return [each.waiting_for for each in state.unserved if store.waits_in(tx, batch_id, each.queue)]


def create_from_address(
    services: Services, caller: Principal, body: BatchRequest, idempotency_key: str | None
) -> tuple[BatchDetail, bool]:
    """The batch of the manifest, folder or prefix that `body` names, and whether it is new."""
    if not body.source.lower().endswith(_MANIFESTS):
        intake = Intake(services, caller, body, address=body.source)
        return _run(services, body, intake, body.source, "", idempotency_key)
    reach = reach_of(services, caller.project_for(body.project), body.connection)
    with _fetch(services, caller, body.source, reach) as path:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        intake = Intake(services, caller, body, manifest=path)
        return _run(services, body, intake, body.source, digest, idempotency_key)


def create_from_manifest(
    services: Services,
    caller: Principal,
    body: BatchUploadRequest,
    manifest: tuple[Path, str],
    idempotency_key: str | None,
) -> tuple[BatchDetail, bool]:
    """The batch of an uploaded manifest (its path and digest), and whether it is new."""
    path, digest = manifest
    intake = Intake(services, caller, body, manifest=path)
    return _run(services, body, intake, "manifest", digest, idempotency_key)


@contextmanager
def _fetch(services: Services, caller: Principal, address: str, reach: Reach) -> Iterator[Path]:
    """The manifest at `address` as a local file."""
    source = reach.apply(check_source(address, services.settings, caller))
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
    store_of_manifest = reach.store(bucket)
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


def _run(
    services: Services,
    request: BatchUploadRequest,
    intake: Intake,
    source: str,
    content: str,
    idempotency_key: str | None,
) -> tuple[BatchDetail, bool]:
    """Check every line first if the batch is strict, then write block after block."""
    identity = json.dumps([canonical_request(request, intake.project), source, content], sort_keys=True)
    new = store.NewBatch(
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
        _refuse_invalid(intake)
    report = Report()
    batch, created = _write(services, intake, report, new)
    if batch is None:
        raise _no_valid_line(report)
    with services.database.begin() as tx:
        store.close_batch(tx, batch.id, report)
    failpoint("batch.closed")
    return load_detail(services, batch.id), created


def _write(
    services: Services, intake: Intake, report: Report, new: store.NewBatch
) -> tuple[store.Batch | None, bool]:
    batch, created = None, False
    for number, block in enumerate(in_blocks(intake.jobs(report), BLOCK)):
        with services.database.begin() as tx:
            if batch is None:
                batch, created = store.create_batch(tx, new)
            own, lost = take_uploads(tx, batch.id, [replace(job, batch_id=batch.id) for job in block])
            store.add_jobs(tx, batch.id, own)
        for job in lost:
            message = "Another job took the upload meanwhile, or it was removed."
            report.add(BadLine(job.batch_line or 0, "conflict", message, job.custom_id))
        failpoint("batch.written")
        if number % _WAKE_EACH == 0:
            services.sweeper.wake()
    services.sweeper.wake()
    return batch, created


def _refuse_invalid(intake: Intake) -> None:
    report = Report()
    for _ in intake.jobs(report):
        pass
    if report.bad:
        raise _invalid(
            report,
            f"{report.bad} of {report.lines} lines are invalid. The batch is strict, so no job was created.",
        )


def _no_valid_line(report: Report) -> Problem:
    if not report.lines:
        skipped = f" {report.skipped} files there were skipped." if report.skipped else ""
        return _invalid(report, f"The manifest, folder or prefix has no recordings.{skipped}")
    return _invalid(report, f"All {report.lines} lines are invalid.")


def _invalid(report: Report, sentence: str) -> Problem:
    members: dict[str, Any] = {"lines": report.lines, "bad": report.bad, "skipped": report.skipped}
    if report.skipped:
        members["skipped_files"] = [asdict(file) for file in report.skipped_files]
    return Problem(422, "bad_lines", sentence, **members, bad_lines=present_bad_lines(report))
