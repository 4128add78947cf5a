"""Reads the log of a live session, record by record, as fast as it is written.

What is read is kept in a file of this worker, from which the recording is made when the session ends. Hints
say that a record has come; without them the store is asked again every second.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Protocol, Self

from spool import clock
from spool.broker.live_signals import LOOK_SECONDS, Subscription
from spool.domain.live.log import (
    ABANDONED_SECONDS,
    LogParts,
    LogRecord,
    audio_size,
    decode_record,
    is_in_part,
    log_prefix,
    part_prefix,
    record_key,
)
from spool.domain.live.options import Listening
from spool.errors import NotFound, ObjectDamaged, SourceMissing
from spool.objects import ObjectStore

_BLOCK = 1 << 20


class LogKeeper(Protocol):
    """What SQL says of the log."""

    def parts(self) -> LogParts:
        """Its parts as of now."""

    def close(self, known: LogParts) -> bool:
        """Let no part follow; False where one does already, behind those `known`."""


class LogReader:
    """The log of one session, from the record at which an attempt begins. Leaving its block removes the
    file."""

    def __init__(
        self,
        objects: ObjectStore,
        job_id: str,
        listening: Listening,
        folder: Path,
        subscription: Subscription,
        keeper: LogKeeper,
    ) -> None:
        """`folder` is where the worker keeps what it fetches."""
        self._objects, self._job_id, self._listening, self._subscription = (
            objects,
            job_id,
            listening,
            subscription,
        )
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = TemporaryDirectory(dir=folder, prefix="live-")
        self._path = Path(self._folder.name) / "heard"
        self._heard = self._path.open("wb")
        self._keeper, self._parts = keeper, keeper.parts()
        self._part = self._next = 0
        self._part_bytes = 0  # of audio in the records of this part that were read
        self._skipped: list[int] = []  # records of each part
        self._skipped_bytes = 0
        self._bytes = 0
        self._came_at = self._looked_at = clock.monotonic()
        self._patience = listening.resume_seconds or ABANDONED_SECONDS
        self._waited = False
        self._read_ahead: LogRecord | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._heard.close()
        self._folder.cleanup()

    @property
    def frames(self) -> int:
        """Samples of the recording up to the next record."""
        return self._position // self._listening.frame_bytes

    @property
    def _position(self) -> int:
        return self._skipped_bytes + self._bytes

    def skip_to(self, position: int) -> None:
        """Begin behind the first records that together reach `position` (samples at 16 kHz); nothing was read
        yet. Raises SourceMissing where the log is shorter."""
        if position <= 0:
            return
        for part in range(self._parts.last + 1):
            self._begin_part(part)
            self._skipped.append(0)
            for item in self._objects.list(part_prefix(self._job_id, part)):
                if not is_in_part(item.key, self._job_id, part):
                    continue
                if self._skipped_bytes >= self._parts.end(part):
                    break
                self._skipped[part] += 1
                self._next += 1
                self._part_bytes += audio_size(item.size)
                self._skipped_bytes = int(
                    min(self._parts.start(part) + self._part_bytes, self._parts.end(part))
                )
                if self._listening.position_of(self.frames) >= position:
                    return
        raise SourceMissing("A part of the live session's log is gone.")

    def _begin_part(self, part: int) -> None:
        self._part, self._next, self._part_bytes = part, 0, 0

    def next(self, check: Callable[[], None]) -> LogRecord:
        """The next record; an end where nobody has written for too long. `check` is called at least every
        second and may raise. Raises StorageError and ObjectDamaged."""
        record, self._read_ahead = self._read_ahead, None
        self._waited = False
        while record is None:
            check()
            record = self._read()
            if record is None:
                record = self._ends_by_silence()
            if record is None and not self._goes_on:
                self._waited = True
                self._subscription.wait(LOOK_SECONDS)
        self._came_at = clock.monotonic()
        if record.kind == "audio":
            self._heard.write(record.data)
            self._bytes += len(record.data)
        return record

    def read_waiting_audio(self, check: Callable[[], None]) -> bytes:
        """The next record's audio where the reader lags behind the writer, else b"". Raises as `next`."""
        if self._waited:
            return b""
        self._read_ahead = self._read_ahead or self._read()
        if self._read_ahead is None or self._read_ahead.kind != "audio":
            return b""
        return self.next(check).data

    def _read(self) -> LogRecord | None:
        """The next record, without what was heard of it already; None where it was not written yet."""
        if clock.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._look()
        while True:
            if self._position >= self._parts.end(self._part):
                self._begin_part(self._part + 1)
                continue
            record = self._read_record(self._part, self._next)
            if record is None:
                return None
            self._next += 1
            if record.kind == "end" and not self._keeper.close(self._parts):
                self._look()  # the session goes on elsewhere, and its old writer did not know
                return None
            if record.kind != "audio":
                return record
            begun = self._parts.start(self._part) + self._part_bytes
            self._part_bytes += len(record.data)
            end = min(begun + len(record.data), self._parts.end(self._part))
            fresh = record.data[self._position - begun : int(end) - begun]
            if fresh:
                return LogRecord("audio", fresh)

    @property
    def _goes_on(self) -> bool:
        """Whether the session's audio goes on in a later part."""
        return self._position >= self._parts.end(self._part)

    def _look(self) -> None:
        self._looked_at = clock.monotonic()
        self._parts = self._keeper.parts()

    def _ends_by_silence(self) -> LogRecord | None:
        """The end, where nobody has written for too long and from now on nobody can."""
        if clock.monotonic() - self._came_at <= self._patience:
            return None
        if self._keeper.close(self._parts):
            return LogRecord("end", b"abandoned")
        self._look()
        self._came_at = clock.monotonic()
        return None

    def _read_record(self, part: int, number: int) -> LogRecord | None:
        key = record_key(self._job_id, number, part)
        try:
            with self._objects.open(key) as stream:
                return decode_record(stream.read())
        except NotFound:
            return None
        except ValueError as error:
            raise ObjectDamaged(f"{key}: {error}.") from None

    def write_recording(self) -> Path:
        """The recording as a WAV file, which goes with this reader. Raises SourceMissing and StorageError."""
        path = self._path.with_name("recording.wav")
        self._heard.flush()
        with path.open("wb") as out:
            out.write(self._listening.wav_header(self._skipped_bytes + self._bytes))
            left = self._skipped_bytes
            for part, count in enumerate(self._skipped):
                room = min(left, self._parts.end(part) - self._parts.start(part))
                for number in range(count):
                    record = self._read_record(part, number)
                    if record is None:
                        raise SourceMissing("A part of the live session's log is gone.")
                    if record.kind == "audio":
                        data = record.data[: int(room)]
                        room, left = room - len(data), left - len(data)
                        out.write(data)
            with self._path.open("rb") as heard:
                shutil.copyfileobj(heard, out, _BLOCK)
        return path


def drop_log(objects: ObjectStore, job_id: str) -> None:
    """Remove the log; its audio is in the recording. Raises StorageError."""
    for item in list(objects.list(log_prefix(job_id))):
        objects.delete(item.key)
