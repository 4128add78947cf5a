"""From a manifest or a listing to jobs: each line checked as a single submission is, the bad ones reported.

Knows what a line may ask for under these settings; writes nothing. The same intake can be gone through twice,
as a strict batch is: once to see that all is good, once to run it.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from api.batch_listing import custom_id_of, listed
from api.caller import Caller
from api.options import judged
from api.sources import checked_source, source_name
from spool.batches import LINES, BadLine, Report, Seen, manifest_lines
from spool.errors import InvalidRequest, SpoolError
from spool.jobs import AskedOptions
from spool.order import PRIORITIES, PriorityName
from spool.settings import Settings
from spool.store.jobs import NewJob, Source
from spool.traces import current
from spool.wire.batches import BatchUploadRequest


class Intake:
    """One request's lines as jobs. `manifest` is a file with them, else `address` is listed."""

    def __init__(
        self,
        settings: Settings,
        caller: Caller,
        asked: BatchUploadRequest,
        *,
        manifest: Path | None = None,
        address: str = "",
    ) -> None:
        self._settings = settings
        self.caller = caller
        self.project = caller.project_for(asked.project)
        self._asked = asked
        self._manifest = manifest
        self._address = address
        self._traceparent = current().header
        self._defaults: dict[str, Any] = asked.options
        # What is wrong with the defaults is wrong with the request, not with each line. Their phrases are
        # read once: there may be ten thousand of them, and a hundred thousand lines.
        boost = self.options({}).boost
        if asked.options.get("boost") is not None:
            self._defaults = asked.options | {"boost": boost}

    def jobs(self, report: Report) -> Iterator[NewJob]:
        """The jobs in order, as they are read; `report` counts lines and keeps the bad ones.

        Raises InvalidRequest for too many lines and whatever listing the address raises.
        """
        seen = Seen()
        for number, line in self._lines(report):
            job = self._job(number, line, seen)
            if isinstance(job, BadLine):
                report.add(job)
            else:
                yield job

    def options(self, own: dict[str, Any]) -> AskedOptions:
        """The line's options over the batch's over the server's. Raises InvalidRequest and UnknownModel."""
        try:
            return judged(self._settings, self._defaults, own)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ".".join(str(step) for step in ("options", *fault["loc"]))
            raise InvalidRequest(f"{where}: {fault['msg'].removeprefix('Value error, ')}") from None

    def _lines(self, report: Report) -> Iterator[tuple[int, "_Line"]]:
        if self._manifest is not None:
            with self._manifest.open("rb") as stream:
                for number, line in manifest_lines(stream, report):
                    custom_id = line.custom_id or f"line-{number}"
                    told = (line.name, line.options, line.tags, line.priority)
                    yield number, _Line(custom_id, line.source, *told)
            return
        for found in listed(self._address, self._settings, self.caller):
            report.lines += 1
            if report.lines > LINES:
                raise InvalidRequest(f"A batch has at most {LINES} recordings; hand in several.")
            custom_id = custom_id_of(found.place)
            if isinstance(found.source, Source):
                yield report.lines, _Line(custom_id, found.source)
            else:
                report.add(BadLine(report.lines, found.source.code, found.source.message, custom_id))

    def _job(self, number: int, line: "_Line", seen: Seen) -> NewJob | BadLine:
        try:
            source = line.source
            if isinstance(source, str):
                source = checked_source(source, self._settings, self.caller)
            options = self.options(line.options)
        except SpoolError as error:
            return BadLine(number, error.code, error.message, line.custom_id)
        if not seen.first(line.custom_id):
            message = "An earlier line of this batch has the same custom_id."
            return BadLine(number, "duplicate_custom_id", message, line.custom_id)
        return NewJob(
            source=source,
            options=options.kept(),
            phrases=options.phrases,
            name=line.name or source_name(source),
            project=self.project,
            key_id=self.caller.key_id,
            traceparent=self._traceparent,
            pool=self._asked.pool or self._settings.pool,
            worker=self._asked.worker,
            reuse=self._asked.reuse,
            batch_line=number,
            custom_id=line.custom_id,
            tags=self._asked.tags | line.tags,
            priority=PRIORITIES[line.priority or self._asked.priority],
            deadline=self._asked.deadline,
        )


@dataclass(frozen=True, slots=True)
class _Line:
    """A line before its source and options were judged; a listing's source has been."""

    custom_id: str
    source: str | Source
    name: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    priority: PriorityName | None = None


def shown_bad_lines(report: Report) -> list[dict[str, Any]]:
    """The report's lines as they are stored and sent."""
    return [asdict(bad) for bad in report.bad_lines]
