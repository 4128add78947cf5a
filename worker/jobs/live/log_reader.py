"""Reads the log of a live session, record by record, as fast as it is written.

What is read is kept in a file of this worker, from which the recording is made when the session ends. Hints
say that a record has come; without them the store is asked again every second.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from spool.broker.live_signals import LOOK_SECONDS, Ear
from spool.domain.live.log import ABANDONED_SECONDS, Record, audio_size, decode_record, log_prefix, record_key
from spool.domain.live.options import Listening
from spool.errors import NotFound, ObjectDamaged, SourceMissing
from spool.objects import ObjectStore

_BLOCK = 1 << 20


class LogReader:
    """The log of one session, from the record at which an attempt begins. Leaving its block removes the
    file."""

    def __init__(
        self, objects: ObjectStore, job_id: str, listening: Listening, folder: Path, ear: Ear
    ) -> None:
        """`folder` is where the worker keeps what it fetches."""
        self._objects, self._job_id, self._listening, self._ear = objects, job_id, listening, ear
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = TemporaryDirectory(dir=folder, prefix="live-")
        self._path = Path(self._folder.name) / "heard"
        self._heard = self._path.open("wb")
        self._first = 0
        self._next = 0
        self._skipped_bytes = 0
        self._bytes = 0
        self._came_at = time.monotonic()
        self._waited = False
        self._read_ahead: Record | None = None

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
        return (self._skipped_bytes + self._bytes) // self._listening.frame_bytes

    def skip_to(self, position: int) -> None:
        """Begin behind the first records that together reach `position` (samples at 16 kHz); nothing was read
        yet. Raises SourceMissing where the log is shorter."""
        if position <= 0:
            return
        for item in self._objects.list(log_prefix(self._job_id)):
            self._skipped_bytes += audio_size(item.size)
            self._first = self._next = self._next + 1
            if self._listening.position_of(self.frames) >= position:
                return
        raise SourceMissing("A part of the live session's log is gone.")

    def next(self, check: Callable[[], None]) -> Record:
        """The next record; an end where the writer has said nothing for too long. `check` is called at least
        every second and may raise. Raises StorageError and ObjectDamaged."""
        record, self._read_ahead = self._read_ahead, None
        self._waited = False
        while record is None:
            check()
            record = self._read()
            if record is None:
                if time.monotonic() - self._came_at > ABANDONED_SECONDS:
                    return Record("end", b"abandoned")
                self._waited = True
                self._ear.wait(LOOK_SECONDS)
        self._came_at = time.monotonic()
        self._next += 1
        if record.kind == "audio":
            self._heard.write(record.data)
            self._bytes += len(record.data)
        return record

    def waiting_audio(self, check: Callable[[], None]) -> bytes:
        """The next record's audio where the reader lags behind the writer, else b"". Raises as `next`."""
        if self._waited:
            return b""
        self._read_ahead = self._read_ahead or self._read()
        if self._read_ahead is None or self._read_ahead.kind != "audio":
            return b""
        return self.next(check).data

    def _read(self) -> Record | None:
        """The next record; None where it was not written yet."""
        key = record_key(self._job_id, self._next)
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
            for number in range(self._first):
                try:
                    with self._objects.open(record_key(self._job_id, number)) as stream:
                        record = decode_record(stream.read())
                except NotFound:
                    raise SourceMissing("A part of the live session's log is gone.") from None
                if record.kind == "audio":
                    out.write(record.data)
            with self._path.open("rb") as heard:
                shutil.copyfileobj(heard, out, _BLOCK)
        return path


def drop_log(objects: ObjectStore, job_id: str) -> None:
    """Remove the log; its audio is in the recording. Raises StorageError."""
    for item in list(objects.list(log_prefix(job_id))):
        objects.delete(item.key)
