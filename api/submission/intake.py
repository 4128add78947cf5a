"""The lines of a manifest or of a listing as jobs: each is checked like a single submission.

`batches` commits them; the watcher builds single ones.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from api.auth.principal import Principal
from api.services import Services
from api.submission.connections import s3_access_of
from api.submission.direct import UploadLookup
from api.submission.glossaries import GlossaryLookup, LanguageModelLookup
from api.submission.jobs import head_of, languages_of, reader_of, requirement_of, resolve_options
from api.submission.listing import custom_id_of, list_recordings
from api.submission.outputs import check_output, output_of, place_of
from api.submission.sources import check_source, source_name
from spool.domain.fleet.routing import Route
from spool.domain.jobs import Source
from spool.domain.manifest import LINES, BadLine, CustomIds, ManifestReport, SkippedFile, manifest_lines
from spool.domain.options import AskedOptions
from spool.domain.priority import PRIORITIES, PriorityName
from spool.errors import InvalidRequest, SpoolError, first_fault
from spool.schemas.batches import BatchUploadRequest
from spool.store.archive.uploads import with_upload
from spool.store.jobs import NewJob
from spool.tables.uploads import SCHEME, StoredUpload
from spool.tracing import current

LINES_A_TURN = 200
"""Lines of one manifest that are read before another manifest has its turn."""


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


class _LineOptions:
    """The options of each line: its own over those of the request over the server's."""

    def __init__(self, services: Services, request: BatchUploadRequest, project: str) -> None:
        """Raises InvalidRequest and UnknownModel for the request's own options."""
        self._settings, self._fleet = services.settings, services.fleet
        self._request = request
        self._default_model = services.fleet.default()
        self._glossaries = GlossaryLookup(services.database, project)
        configured = services.settings.language_models
        self._language_models = LanguageModelLookup(services.database, configured, project)
        self._checked: set[tuple[str, str | None, str | None, tuple[str, ...]]] = set()
        self._defaults: dict[str, Any] = request.options
        if request.options.get("align") is not None:
            raise InvalidRequest(
                "options: align: a transcript belongs to one recording; put it into that recording's line."
            )
        boost = self.resolve({}).boost
        if request.options.get("boost") is not None:
            # Read once: there may be ten thousand phrases, for a million lines.
            self._defaults = request.options | {"boost": boost}

    def resolve(self, own: dict[str, Any]) -> AskedOptions:
        """The options of a line with these of its own. Raises InvalidRequest and UnknownModel."""
        models = self._language_models
        layers = [models.with_version(self._glossaries.with_phrases(each)) for each in (self._defaults, own)]
        try:
            options = resolve_options(
                self._settings, self._default_model, *layers, language_models=models.versions
            )
        except ValidationError as error:
            raise InvalidRequest(first_fault(error, "options")) from None
        self._check_fleet(options)
        return options

    def _check_fleet(self, options: AskedOptions) -> None:
        """Ask the fleet once for each model of the batch. Raises InvalidRequest and UnknownModel."""
        model, reader, head = options.model, reader_of(options), head_of(options)
        languages = languages_of(options)
        if (model, reader, head, languages) in self._checked:
            return
        requires = requirement_of(self._settings, model, self._request.requires)
        route = Route(self._request.pool, self._request.worker, requires=requires, reader=reader)
        self._fleet.check(route, model, head, languages)
        self._checked.add((model, reader, head, languages))


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
        """Raises InvalidRequest, UnknownModel and SourceForbidden for what the request says of all lines."""
        self._settings = services.settings
        self._request = request
        self._manifest, self._address = manifest, address
        self._traceparent = current().header
        self.caller = caller
        self.project = caller.project_for(request.project)
        self.deduplicates = request.deduplicate
        self.access = s3_access_of(services, self.project, request.connection, address or "s3://")
        self.uploads = UploadLookup(services, caller, self.project)
        # A listing waits for a disk or a bucket, and nobody else should have to.
        self._turn = services.manifest_turn if manifest is not None else nullcontext()
        self._output = None
        if request.output is not None:
            with services.database.read() as tx:
                self._output = check_output(tx, services.settings, self.project, request.output)
        self._options = _LineOptions(services, request, self.project)

    def read_jobs(self, report: ManifestReport) -> Iterator[NewJob]:
        """The jobs in order, as they are read; `report` counts the lines and keeps the invalid ones.

        Raises InvalidRequest for too many lines and whatever listing the address raises.
        """
        seen, lines = _SeenLines(), self._read_lines(report)
        while True:
            with self._turn:
                read = list(islice(lines, LINES_A_TURN))
                self.uploads.read(line.source for _, line in read if isinstance(line, _Line))
                jobs = [
                    line if isinstance(line, BadLine) else self._check_line(number, line, seen)
                    for number, line in read
                ]
            for job in jobs:
                if isinstance(job, BadLine):
                    report.add(job)
                else:
                    yield job
            if len(read) < LINES_A_TURN:
                return

    def build_listed_job(self, place: str, source: Source) -> NewJob | BadLine:
        """The job of one recording, found at `place` below the address and not part of any batch."""
        job = self._check_line(1, _Line(custom_id_of(place), source, place=place), _SeenLines())
        return job if isinstance(job, BadLine) else replace(job, batch_line=None)

    def _read_lines(self, report: ManifestReport) -> Iterator[tuple[int, _Line | BadLine]]:
        if self._manifest is None:
            yield from self._list_lines(report)
            return
        with self._manifest.open("rb") as stream:
            for number, line in manifest_lines(stream, report):
                if isinstance(line, BadLine):
                    yield number, line
                    continue
                fields = (line.name, line.options, line.tags, line.priority)
                yield number, _Line(line.custom_id or f"line-{number}", line.source, *fields)

    def _list_lines(self, report: ManifestReport) -> Iterator[tuple[int, _Line | BadLine]]:
        for recording in list_recordings(self._address, self.access, self.caller):
            if isinstance(recording, SkippedFile):
                report.skip(recording)
                continue
            report.lines += 1
            if report.lines > LINES:
                raise InvalidRequest(f"A batch has at most {LINES} recordings; submit several batches.")
            custom_id, source = custom_id_of(recording.place), recording.source
            if isinstance(source, Source):
                yield report.lines, _Line(custom_id, source, place=recording.place)
            else:
                yield report.lines, BadLine(report.lines, source.code, source.message, custom_id)

    def _check_line(self, number: int, line: _Line, seen: _SeenLines) -> NewJob | BadLine:
        """The line's job, or why it has none; a line that is good is noted in `seen`."""

        def refuse(code: str, message: str) -> BadLine:
            return BadLine(number, code, message, line.custom_id)

        try:
            source, upload = self._find_source(line.source)
            options = self._options.resolve(line.options)
        except SpoolError as error:
            return refuse(error.code, error.message)
        if upload is not None and upload.id in seen.uploads:
            return refuse("conflict", "An earlier line of this batch names the same upload.")
        if not seen.custom_ids.first(line.custom_id):
            return refuse("duplicate_custom_id", "An earlier line of this batch has the same custom_id.")
        if upload is None:
            return self._build_job(number, line, source, options, line.name or source_name(source))
        seen.uploads.add(upload.id)
        return with_upload(upload, self._build_job(number, line, source, options, line.name or upload.name))

    def _find_source(self, source: str | Source) -> tuple[Source, StoredUpload | None]:
        """The source, and its upload if it is one. Raises SpoolError."""
        if not isinstance(source, str):
            return source, None
        if source.startswith(SCHEME):
            upload = self.uploads.find(source)
            return Source("upload", upload.key), upload
        return self.access.apply(check_source(source, self._settings, self.caller)), None

    def _build_job(
        self, number: int, line: _Line, source: Source, options: AskedOptions, name: str
    ) -> NewJob:
        request, settings = self._request, self._settings
        return NewJob(
            source=source,
            options=options.job_options(),
            phrases=options.phrases,
            typescript=options.typescript,
            name=name,
            project=self.project,
            key_id=self.caller.key_id,
            traceparent=self._traceparent,
            pool=request.pool,
            worker=request.worker,
            requires=requirement_of(settings, options.model, request.requires),
            reuse=request.reuse,
            deduplicate=request.deduplicate,
            batch_line=number,
            custom_id=line.custom_id,
            tags=request.tags | line.tags,
            priority=PRIORITIES[line.priority or request.priority],
            deadline=request.deadline,
            output=output_of(self._output, name, line.place or place_of(source, settings, name)),
        )
