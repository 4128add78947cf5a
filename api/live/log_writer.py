"""Writes what a live client sends to its part of the session's log, piece by piece, and notifies the worker.

A record is written once the one before it is stored, with all audio received meanwhile: a slow object store
makes pieces larger, not more numerous.
"""

import asyncio
from dataclasses import dataclass

from anyio import CapacityLimiter, to_thread

from api.live.limits import SessionEnd
from spool import clock
from spool.broker.live_signals import LiveSignals, audio_channel
from spool.domain.live.log import KEEP_ALIVE_SECONDS, LogRecord, record_key
from spool.errors import StorageError
from spool.objects import ObjectStore

PIECE_SECONDS = 0.1
"""The least interval between records of audio."""
MOST_PIECE_BYTES = 512 * 1024
MOST_PENDING_BYTES = 4 << 20
"""The most audio not yet stored; a client that sends more has to wait."""
MOST_PENDING_FINALS = 16
"""The most requests for a final not yet stored. Each is a piece by itself, so that a client that sends them
faster than the object store takes them would delay the session's end."""
STORE_SECONDS = 20.0
"""How long the object store may fail before the session is ended."""
_RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Place:
    """Where a connection continues a session: the part of the log that it writes, the bytes of audio before
    it, and the first chunk to send to its client."""

    part: int = 0
    start: int = 0
    chunk: int = 0


FIRST = Place()


class LogWriter:
    """The log of one connection of a session. Used in the event loop; `run` is a separate task."""

    def __init__(
        self,
        objects: ObjectStore,
        signals: LiveSignals,
        job_id: str,
        limiter: CapacityLimiter,
        place: Place = FIRST,
    ) -> None:
        """`limiter` bounds the threads of all sessions; `place`: which part of the log this is."""
        self._objects, self._signals, self._job_id, self._limiter = objects, signals, job_id, limiter
        self._records: list[LogRecord] = []
        self._size = 0
        self._is_final = False
        self._number = 0
        self._part, self._leaves = place.part, False
        self.stored_bytes = place.start
        """Bytes of the session's audio in the object store, where no crash can lose them."""
        self._came = asyncio.Event()
        self._stored = asyncio.Event()

    async def audio(self, data: bytes) -> None:
        """Append audio; waits while too much of it is not stored yet."""
        self._append(LogRecord("audio", data))
        self._is_final = False
        while self._size > MOST_PENDING_BYTES:
            self._stored.clear()
            await self._stored.wait()

    def finalize(self) -> None:
        """Append a request to make everything up to here final.

        Without audio since the last one there is nothing more to make final; where too many wait, this one
        replaces the last of them.
        """
        if self._is_final:
            return
        waiting = [at for at, record in enumerate(self._records) if record.kind == "finalize"]
        if len(waiting) >= MOST_PENDING_FINALS:
            del self._records[waiting[-1]]
        self._append(LogRecord("finalize"))
        self._is_final = True

    def end(self, reason: str) -> None:
        """Append the end; `run` returns once it is stored."""
        self._append(LogRecord("end", reason.encode()))

    def leave(self) -> None:
        """Write no end, since the session may be resumed on another connection. `run` returns once all is
        stored."""
        self._leaves = True
        self._came.set()

    async def run(self) -> None:
        """Store everything, up to the end. Raises SessionEnd if the object store fails for too long."""
        while True:
            record = await self._next()
            if record is None:
                return
            await self._store(record)
            if record.kind == "end":
                return
            if record.kind == "audio" and not self._leaves:
                await asyncio.sleep(PIECE_SECONDS)

    def _append(self, record: LogRecord) -> None:
        self._records.append(record)
        self._size += len(record.data)
        self._came.set()

    async def _next(self) -> LogRecord | None:
        """What to store next, with audio in as few pieces as possible. None once there is no more."""
        while not self._records:
            if self._leaves:
                return None
            self._came.clear()
            try:
                await asyncio.wait_for(self._came.wait(), KEEP_ALIVE_SECONDS)
            except TimeoutError:
                return LogRecord("alive")
        first = self._records[0]
        if first.kind != "audio":
            return self._records.pop(0)
        count = size = 0
        for record in self._records:
            if record.kind != "audio" or (count and size + len(record.data) > MOST_PIECE_BYTES):
                break
            count, size = count + 1, size + len(record.data)
        audio = b"".join(record.data for record in self._records[:count])
        del self._records[:count]
        return LogRecord("audio", audio)

    async def _store(self, record: LogRecord) -> None:
        begun = clock.monotonic()
        while True:
            try:
                await to_thread.run_sync(self._put, record, limiter=self._limiter)
                break
            except StorageError as error:
                if clock.monotonic() - begun > STORE_SECONDS:
                    raise SessionEnd(1011, f"The recording cannot be stored: {error.message}") from None
                await asyncio.sleep(_RETRY_SECONDS)
        self._number += 1
        self._size -= len(record.data)
        self.stored_bytes += len(record.data) if record.kind == "audio" else 0
        self._stored.set()

    def _put(self, record: LogRecord) -> None:
        self._objects.put_bytes(record_key(self._job_id, self._number, self._part), record.encode())
        self._signals.tell(audio_channel(self._job_id))
