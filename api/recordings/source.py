"""Where a recording's bytes are, and how they are read: in the object store, a bucket or an allowed folder.

Web addresses are not fetched on behalf of callers.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Protocol

from api.auth.principal import Principal
from api.problems import Problem
from api.services import Services
from api.submission.connections import s3_access_of
from api.submission.sources import check_source, file_path
from spool.domain.jobs import Job, JobState, Source
from spool.domain.retention import Content
from spool.errors import InvalidRequest, NotFound, SourceMissing, SpoolError
from spool.objects import ObjectStore
from spool.objects.integrity import read_range
from spool.store.deletions import refuse_deleted
from spool.store.jobs import hashes_of_source

BLOCK = 64 * 1024  # what a slow client may occupy, besides the socket's buffers
_SKIP = 1 << 20
"""Bytes that are read on rather than opening the recording again further on."""


class Readable(Protocol):
    """Bytes that can be sent, whole or in part."""

    @property
    def size(self) -> int: ...

    def part(self, start: int, end: int) -> Iterator[bytes]:
        """Bytes `[start, end)`."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording that can be read here."""

    size: int
    store: ObjectStore | None
    key: str
    etag: str | None
    path: Path | None
    hashes: bytes | None = None
    """Of an upload's blocks, which are verified before they are sent."""
    stored_etag: str | None = None
    """What the store now reports of it."""

    def part(self, start: int, end: int) -> Iterator[bytes]:
        """Bytes `[start, end)`. If the first block of an upload is damaged, raises before any byte is
        sent."""
        if self.hashes is None:
            return read_blocks(lambda: self.open(start), end - start)
        parts = self._verify(start, end)
        return chain((next(parts, b""),), parts)

    def _verify(self, start: int, end: int) -> Iterator[bytes]:
        assert self.store is not None
        assert self.hashes is not None
        if start < end:
            yield from read_range(self.store, self.key, self.etag, self.hashes, start, end)

    def open(self, start: int) -> BinaryIO:
        """Its bytes from `start`."""
        if self.path is not None:
            stream = self.path.open("rb")
            stream.seek(start)
            return stream
        assert self.store is not None
        return self.store.open(self.key, self.etag, start=start)


class RecordingFile:
    """A recording as a seekable file, as libsndfile reads it.

    Reads that follow one another take one stream; a jump opens another. Holds one block. An exception cannot
    pass through libsndfile, so it is kept in `error`.
    """

    def __init__(self, recording: Readable) -> None:
        self._recording = recording
        self._at = 0
        self._block = b""
        self._begin = 0
        self._blocks: Iterator[bytes] | None = None
        self.error: SpoolError | OSError | None = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move as `io.IOBase.seek` does."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._recording.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        """The position of the next read."""
        return self._at

    def read(self, count: int = -1) -> bytes:
        """Up to `count` bytes."""
        left = self._recording.size - self._at
        count = left if count < 0 else min(count, left)
        found = []
        try:
            while count > 0 and (piece := self._next(count)):
                found.append(piece)
                self._at += len(piece)
                count -= len(piece)
        except (SpoolError, OSError) as error:
            self.error = error
            return b""
        return b"".join(found)

    def _next(self, count: int) -> bytes:
        """The bytes at the position that are at hand, at most `count`; empty at the end."""
        end = self._begin + len(self._block)
        if self._blocks is None or not self._begin <= self._at <= end + _SKIP:
            self._blocks = self._recording.part(self._at, self._recording.size)
            self._begin, self._block = self._at, b""
        while self._at >= self._begin + len(self._block):
            self._begin += len(self._block)
            self._block = next(self._blocks, b"")
            if not self._block:
                return b""
        return self._block[self._at - self._begin :][:count]

    def write(self, _data: bytes) -> int:
        """Refused: libsndfile requires the method but never calls it on a file open for reading."""
        raise OSError("this file is read-only")


def find_recording(services: Services, caller: Principal, job: Job) -> Recording:
    """Where the job's recording is. Raises `Problem`, Deleted and NotFound if it cannot be read here."""
    source = job.source
    if source.kind in ("s3", "file"):
        refuse_unheard(job)
    match source.kind:
        case "upload":
            refuse_deleted(job, Content.SOURCE)
            with services.database.read() as tx:
                hashes = hashes_of_source(tx, job.id)
            # A direct upload is pinned by its ETag until a worker has hashed its blocks.
            stored = _find_stored(services.objects, source.uri, source.etag if hashes is None else None)
            return replace(stored, hashes=hashes)
        case "live":
            refuse_deleted(job, Content.SOURCE)
            raise Problem(409, "not_here", "The session has not ended; its recording can be played then.")
        case "s3":
            bucket, _, key = source.uri.removeprefix("s3://").partition("/")
            try:
                access = s3_access_of(services, job.project, source.connection)
                access.check(source.uri)
            except InvalidRequest as error:
                raise Problem(409, "not_here", error.message) from None
            return _find_stored(access.store(bucket), key, source.etag)
        case "file":
            return _find_local(source, services, caller)
    raise Problem(409, "not_here", "The recording is at a web address; play it there.")


def refuse_unheard(job: Job) -> None:
    """Raise `Problem` if nothing of it has been decoded."""
    # Otherwise anyone who submits an address could read what is there, audio or not.
    if not (job.done_seconds or job.state is JobState.DONE):
        raise Problem(409, "not_here", "The recording can be played once a worker has decoded some of it.")


def _find_stored(store: ObjectStore, key: str, etag: str | None) -> Recording:
    facts = store.head(key)
    if facts is None:
        raise NotFound("The recording no longer exists.")
    return Recording(facts.size, store, key, etag, None, stored_etag=facts.etag)


def _find_local(source: Source, services: Services, caller: Principal) -> Recording:
    # Checked again: roots may have been removed since, and links created.
    try:
        path = file_path(check_source(source.uri, services.settings, caller))
        return Recording(path.stat().st_size, None, "", None, path)
    except (OSError, SourceMissing):
        raise NotFound("The recording no longer exists.") from None


def read_blocks(opened: Callable[[], BinaryIO], length: int) -> Iterator[bytes]:
    """The first `length` bytes of what `opened` returns; opened on the first read, not for a client that
    left."""
    with opened() as stream:
        while length and (block := stream.read(min(BLOCK, length))):
            length -= len(block)
            yield block
