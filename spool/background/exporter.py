"""Writes transcripts to the outputs of jobs: folders and buckets outside Spool's store.

One process at a time does it, in rounds: each file gets its name, is rendered from the verified transcript,
written whole, and recorded. A crash in between writes the same bytes again. Failures are retried for a day on
the schedule of webhooks; a destination that does not answer delays only its own files.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from urllib.parse import quote

import structlog

from spool import clock
from spool.background.thread import BackgroundLoop
from spool.domain.archive.closures import ClosedParts
from spool.domain.archive.edits import Edit, apply_edits
from spool.domain.jobs import Job
from spool.domain.transcript import Transcript
from spool.domain.webhooks import wait_after
from spool.errors import InvalidRequest, NotFound, SpoolError, StorageError
from spool.failpoints import failpoint
from spool.formats import CONTENT_TYPES, FORMATS, Format, render_bytes
from spool.formats.file_names import SUFFIXES, file_name
from spool.ids import new_id
from spool.objects import ObjectStore
from spool.objects.integrity import read_verified
from spool.objects.output_folders import OutputFolders
from spool.settings import Settings
from spool.settings.secret_key import SecretBox, SecretUnreadable
from spool.store import Database
from spool.store.archive.closed import closed_parts_of
from spool.store.archive.connections import get_connection, reencrypt_connections
from spool.store.archive.exports import (
    due_exports,
    note_failed,
    note_if_settled,
    note_written,
    postpone_destination,
    take_target,
)
from spool.store.jobs import get_job
from spool.store.queue import locks
from spool.store.transcripts.edits import edits_of
from spool.tables.exports import Export

LOCK = "exports"
AT_ONCE = 100
"""Files of one round."""
LOOK_S = 2.0
_LOCK_SECONDS = 120.0
_SILENT_S = 60.0
"""How long a destination that does not answer is left alone."""

log = structlog.get_logger(__name__)


class Exporter(BackgroundLoop):
    """Writes due files until stopped."""

    def __init__(self, db: Database, objects: ObjectStore, settings: Settings, box: SecretBox) -> None:
        super().__init__("spool-exporter")
        self._db, self._objects, self._settings, self._box = db, objects, settings, box
        self._folders = OutputFolders(settings.output_prefixes)
        self._owner = new_id("exp")
        self._reencrypted = False

    def run_once(self) -> float:
        """Write due files; return the seconds until the next round."""
        if not self._reencrypted:
            with self._db.begin() as tx:
                reencrypt_connections(tx, self._box)
            self._reencrypted = True
        with self._db.look() as tx:
            due = due_exports(tx, AT_ONCE)
        if not due:
            return LOOK_S
        with self._db.begin() as tx:
            if not locks.try_lock(tx, LOCK, self._owner, _LOCK_SECONDS):
                return LOOK_S
        with self._db.look() as tx:  # another process may have written some before it released the lock
            due = due_exports(tx, AT_ONCE)
        self._write_all(due)
        return 0.0

    def finish(self) -> None:
        """Release the lock for the next process; otherwise it would run out by itself."""
        with self._db.begin() as tx:
            locks.unlock(tx, LOCK, self._owner)

    def _write_all(self, due: list[Export]) -> None:
        ends = clock.monotonic() + _LOCK_SECONDS / 2
        silent: set[tuple[str, str]] = set()
        for job_id, exports in groupby(due, key=attrgetter("job_id")):
            with self._db.look() as tx:
                job, edits = get_job(tx, job_id), edits_of(tx, job_id)
                closed = closed_parts_of(tx, job)
            record: Transcript | SpoolError | None = None
            for export in exports:
                if self.stopping or clock.monotonic() > ends:
                    return
                if (export.project, export.destination) in silent:
                    continue
                record = record or _transcript(self._objects, job, edits, closed)
                if not self._write(export, job, record):
                    silent.add((export.project, export.destination))

    def _write(self, export: Export, job: Job, record: Transcript | SpoolError) -> bool:
        """Write one file and record the outcome; False if its destination does not answer."""
        try:
            if isinstance(record, SpoolError):
                raise record
            form = _format(export.format)
            data = render_bytes(record, form)
        except StorageError as error:  # our own object store failed; the file is retried
            self._note_failed(export, job, error)
            return True
        except SpoolError as error:
            self._note_failed(export, job, error, for_good=True)
            return True
        with self._db.begin() as tx:
            uri = take_target(tx, export, job, list(_uris(job, form)))
            if uri is None:
                note_if_settled(tx, job)
        if uri is None:
            return True
        failpoint("export.named")
        try:
            digest = self._put(job, uri, data, CONTENT_TYPES[form])
        except SpoolError as error:
            self._note_failed(export, job, error)
            if isinstance(error, StorageError):
                with self._db.begin() as tx:
                    postpone_destination(tx, export, error.message, _SILENT_S)
                return False
            return True
        failpoint("export.written")
        with self._db.begin() as tx:
            if note_written(tx, export, digest):
                note_if_settled(tx, job)
        return True

    def _put(self, job: Job, uri: str, data: bytes, content_type: str) -> str:
        from spool.objects.connections import options_of  # boto3 takes a tenth of a second
        from spool.objects.outputs import write_file, write_object
        from spool.objects.s3_client import S3Options

        assert job.output is not None
        if uri.startswith("file://"):
            self._folders.check(job.output["prefix"])
            return write_file(uri, job.output["prefix"], data)
        settings = self._settings
        options = S3Options(
            endpoint_url=settings.s3_endpoint_url,
            region=settings.s3_region,
            access_key_id=settings.s3_access_key_id,
            secret_access_key=settings.s3_secret_access_key,
            checksums=settings.s3_checksums,
        )
        if (name := job.output["connection"]) is not None:
            with self._db.look() as tx:
                row = get_connection(tx, job.project, name)
            row.check_write(uri)
            options = options_of(row, settings, self._box)
        return write_object(options, uri, data, content_type)

    def _note_failed(self, export: Export, job: Job, error: SpoolError, *, for_good: bool = False) -> None:
        wait = None if for_good else wait_after(export.tries + 1)
        message = error.message
        if isinstance(error, SecretUnreadable):
            message = f"Connection {export.destination.partition(':')[2]}: {error.message}"
        with self._db.begin() as tx:
            if note_failed(tx, export, message, wait) and wait is None:
                note_if_settled(tx, job)
        log.warning(
            "a transcript could not be written elsewhere",
            job=export.job_id,
            format=export.format,
            reason=message,
            again_in_seconds=wait,
        )


def _transcript(
    objects: ObjectStore, job: Job, edits: Sequence[Edit], closed: ClosedParts
) -> Transcript | SpoolError:
    """The job's transcript with its corrections, or why there is none. The files are made for nobody in
    particular, so nothing closed is in them."""
    if job.transcript_key is None:
        return NotFound(
            "The transcript was deleted." if job.transcript_deleted_at else "There is no transcript."
        )
    try:
        record = read_verified(objects, job.transcript_key, job.transcript_sha256 or "")
    except SpoolError as error:
        return error
    transcript = apply_edits(Transcript.model_validate_json(record), edits)
    return closed.redact(transcript.with_names(job.speaker_names))


def _format(name: str) -> Format:
    for form in FORMATS:
        if form == name:
            return form
    raise InvalidRequest(f"{name} is not a transcript format.")


def _uris(job: Job, form: Format) -> Iterator[str]:
    """Where the file goes; if another recording has that name, with the job's id in front of it."""
    assert job.output is not None
    path = file_name(job.output["path"], SUFFIXES[form])
    for each in (path, path.with_name(f"{job.id} {path.name}")):
        if job.output["prefix"].startswith("file://"):
            yield job.output["prefix"] + quote(str(each), errors="surrogateescape")
        else:
            yield f"{job.output['prefix']}{each}"
