"""Recognises what was transcribed before, so that the same content with the same options costs nothing.

Says what the source is (the SHA-256 of its bytes, for S3 its ETag) and by what it is transcribed (a
fingerprint of options and weights), and fetches an earlier transcript that matches both. Whoever finishes the
job stores the copy under the job's own key. Decodes nothing; a transcript that is gone or spoilt is none.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypedDict

import structlog

from spool.answering import Answering
from spool.domain.jobs import Job
from spool.domain.options import JobOptions
from spool.domain.receipts import Origin
from spool.domain.transcript import SCHEMA, Transcript
from spool.errors import NotFound, SourceChanged
from spool.objects import ObjectStore, s3_store
from spool.objects.integrity import hash_file
from spool.settings import Settings
from spool.store.database import Database
from spool.store.jobs import keep_source_hashes
from spool.store.transcripts.reuse import KnownTranscript, find_by_content, find_by_etag
from worker.sources.fetch import Sources
from worker.sources.links import SignedLink

BLOCK = 4 << 20
SMALL_BYTES = 1 << 20
"""A recording up to this size is read without a thread beside the job's, which would take longer than the
recording takes to be read (`ops.bench.queue.queue_cost`)."""

log = structlog.get_logger(__name__)


class Facts(TypedDict):
    """What the job's row keeps; the fields of `Outcome`."""

    content_sha256: str | None
    fingerprint: str | None
    source_etag: str | None
    source_size: int | None
    reused_from: str | None


class Reuse:
    """One attempt's search for an earlier transcript."""

    def __init__(
        self,
        settings: Settings,
        db: Database,
        objects: ObjectStore,
        job: Job,
        mark: str,
        answering: Answering | None = None,
    ) -> None:
        """`answering` reads the recording; None: directly."""
        self._answering = answering or Answering(job.name, threaded=False)
        self._settings = settings
        self._db = db
        self._objects = objects
        self._job = job
        self._fingerprint = mark
        self._content: str | None = None
        self._marks: tuple[int, int, int, int] | None = None
        self.origin: Origin | None = None
        """Where the words come from, once a transcript was reused."""
        self.source = job.source

    def fetch(
        self, sources: Sources, check: Callable[[], None], hashes: bytes | None
    ) -> contextlib.AbstractContextManager[Path]:
        """The source as a local file while the block runs (`Sources.fetch`)."""
        named = self.source.connection is not None
        link = SignedLink(self._db, self._job.id) if named else None
        return sources.fetch(self.source, self._job.name, check, hashes, link)

    def before_fetch(self) -> Transcript | None:
        """Find out which version of an S3 object there is, for `source` to pin; its transcript, if known."""
        source = self.source
        # One that is read with a connection is asked for once, and pinned by its first answer.
        if source.kind == "s3" and source.etag is None and source.connection is None:
            bucket, _, key = source.uri.removeprefix("s3://").partition("/")
            head = s3_store(self._settings, bucket).head(key)
            if head is not None:
                self.source = source = replace(source, size=head.size, etag=head.etag)
        if not self._job.reuse:
            return None
        with self._db.read() as tx:
            known = find_by_etag(tx, self._job.project, source, self._fingerprint)
        return self._take(known)

    def after_fetch(self, path: Path, check: Callable[[], None], *, hashed: bool = True) -> Transcript | None:
        """Hash what was fetched; the transcript of the same bytes, if known. `check` may raise to stop.
        hashed: the hashes of an upload's blocks are recorded; else they are now.

        Raises SourceChanged where an earlier attempt read other bytes, or the client announced others.
        """
        blocks: bytes | None = None
        with contextlib.suppress(OSError):  # whoever opens the recording names what is wrong with it
            self._marks = self._answering.call(partial(_marks, path))
            if self._marks[0] <= SMALL_BYTES:
                self._answering.read_directly()
            if hashed or self._job.source.kind != "upload":
                self._content = self._digest(path, check)
            else:
                self._content, blocks = hash_file(path, check)
        if self._job.content_sha256 not in (None, self._content):
            raise self._make_error("since it was announced, or since an earlier attempt read it")
        if blocks is not None:
            with self._db.begin() as tx:
                keep_source_hashes(tx, self._job, blocks)
        if not self._job.reuse or self._content is None:
            return None
        with self._db.read() as tx:
            known = find_by_content(tx, self._job.project, self._content, self._fingerprint)
        return self._take(known)

    def confirm(self, path: Path, check: Callable[[], None]) -> None:
        """The recording was decoded: raise SourceChanged where it was not the same from beginning to end."""
        try:
            marks = self._answering.call(partial(_marks, path))
            if marks == self._marks or self._digest(path, check) == self._content:
                return
        except OSError:
            pass
        raise self._make_error("while it was read")

    def _digest(self, path: Path, check: Callable[[], None]) -> str:
        digest = hashlib.sha256()
        with self._answering.opened(lambda: path.open("rb")) as file:
            while block := self._answering.call(partial(file.read, BLOCK)):
                digest.update(block)
                check()
        return digest.hexdigest()

    def _make_error(self, when: str) -> SourceChanged:
        return SourceChanged(f"{self._job.name}: the recording changed {when}; submit it as a new job.")

    def facts(self) -> Facts:
        """What tells later jobs that this one did their work."""
        return Facts(
            content_sha256=self._content,
            fingerprint=self._fingerprint,
            source_etag=self.source.etag,
            source_size=self.source.size,
            reused_from=None if self.origin is None else self.origin.job,
        )

    def _take(self, known: KnownTranscript | None) -> Transcript | None:
        if known is None:
            return None
        try:
            with self._objects.open(known.key) as stream:
                record = stream.read()
        except NotFound:
            return None
        if hashlib.sha256(record).hexdigest() != known.sha256:
            log.warning("spoilt transcript not reused", key=known.key)
            return None
        self.origin = Origin(job=known.job_id, transcript_sha256=known.sha256)
        self._content = self._content or known.content_sha256
        earlier = Transcript.model_validate_json(record)
        audio = earlier.audio.model_copy(update={"name": self._job.name})
        # They may name the command that runs the job again.
        warnings = tuple(each.replace(str(earlier.job), self._job.id) for each in earlier.warnings)
        return earlier.model_copy(update={"job": self._job.id, "audio": audio, "warnings": warnings})


def fingerprint(options: JobOptions, makers: tuple[str | None, ...]) -> str:
    """SHA-256 (hex) of all that a transcript's words depend on besides the audio (law 7), and of its schema.

    makers: the digests of the model (`ModelInfo.digest`), of the language model's file and of the speech
    detector, None where there is none.
    """
    inputs = [SCHEMA, options.of_words.document(), *makers]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def _marks(path: Path) -> tuple[int, int, int, int]:
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino
