"""One attempt at a job: its chunks to the engine and back, each saved as soon as it is finished.

Knows the claim, the chunk plan and the engine's futures; how the job ends is `worker.job`'s business. What
an earlier attempt saved is not decoded again (law 4): the plan depends on the samples alone, so it comes
out the same.
"""

import threading
import time
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace

import structlog

from spool.errors import JobCancelled, LeaseLost, SourceChanged, SpoolError, StorageError
from spool.failpoints import failpoint
from spool.queue import queue_name
from spool.settings import Settings
from spool.store.chunks import SavedChunk, save_chunk, saved_chunks
from spool.store.costs import Charge
from spool.store.database import Database
from spool.store.leases import Claim, renew_lease, set_progress
from spool.store.outbox import queued_by_queue
from spool.transcript import Word
from worker.assemble import Heard, Piece
from worker.audio import SAMPLE_RATE
from worker.billing import WastedTime
from worker.chunks import Chunk
from worker.decode.hypothesis import SearchOptions, UtteranceResult
from worker.engine import Engine
from worker.lease import Lease
from worker.patience import patiently

log = structlog.get_logger(__name__)

WAIT_SECONDS = 0.5  # how often a waiting job looks up: for a lost lease, a cancel, a drain
CALLS_PER_YIELD = 10


class GiveBack(Exception):
    """The job goes back into the queue at a saved chunk: the worker drains, or others have waited long
    enough."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What every attempt of one worker works with."""

    settings: Settings
    db: Database
    engine: Engine
    wasted: WastedTime
    worker_id: str
    draining: threading.Event


@dataclass(slots=True)
class Attempt:
    """The decoding of one claimed job. `model` is a path or hub id, `done_samples` counts over all
    channels."""

    bench: Bench
    claim: Claim
    lease: Lease
    model: str = ""
    channels: int = 1
    done_samples: int = 0
    _kept: int = 0
    heard: list[Heard] = field(default_factory=list)
    _flying: dict[Future[UtteranceResult], Piece] = field(default_factory=dict)
    _saved: dict[tuple[int, int], SavedChunk] = field(default_factory=dict)
    _begun: float = field(default_factory=time.monotonic)
    _asked: float = field(default_factory=time.monotonic)

    def remember(self) -> None:
        """Read what earlier attempts saved. Raises StorageError."""
        with self.bench.db.read() as tx:
            self._saved = {
                (chunk.channel, chunk.index): chunk for chunk in saved_chunks(tx, self.claim.job.id)
            }

    def decode(self, chunks: Iterable[Chunk]) -> None:
        """Send every chunk that is not saved to the engine and save what comes back; `heard` is then
        complete.

        Raises what stops the attempt: GiveBack, LeaseLost, JobCancelled, StorageError, or the SpoolError of
        the recording or of one of its utterances.
        """
        for chunk in chunks:
            self.check()
            piece = Piece(
                chunk.channel,
                chunk.index,
                chunk.core_start,
                chunk.core_end,
                chunk.start,
                chunk.end,
                chunk.speech,
            )
            if self._is_saved(piece):
                continue
            if not chunk.speech:
                self._save(piece, (), 0)
                continue
            while len(self._flying) >= self.bench.engine.options.slots:
                self._land(WAIT_SECONDS)
            self._submit(chunk, piece)
            self._land(0)
        while self._flying:
            self._land(WAIT_SECONDS)

    def abandon(self) -> None:
        """Leave the engine: take out what waits there, keep what it finishes while the claim holds (law 4),
        and bill the rest as wasted (law 5). Returns when nothing of this attempt is in the engine any
        more."""
        if self._flying:
            self.bench.engine.forget(self._engine_name)
        for future, piece in list(self._flying.items()):
            try:
                result = future.result()
            except SpoolError:
                continue
            try:
                self._save(piece, result.words, result.engine_ns)
            except SpoolError as error:
                log.info(
                    "finished chunk not kept", job=self.claim.job.id, chunk=piece.index, reason=error.code
                )
        self._flying.clear()

    def check(self) -> None:
        """Raise what should stop the attempt now."""
        self.lease.check()
        if self.bench.draining.is_set():
            raise GiveBack("the worker drains")
        settings = self.bench.settings
        now = time.monotonic()
        # A turn in which nothing was kept is not over: handing back then would change nothing but the
        # attempt.
        if now - self._begun < settings.yield_seconds or not self._kept:
            return
        if now - self._asked < settings.yield_seconds / CALLS_PER_YIELD:
            return
        self._asked = now
        with self.bench.db.read() as tx:
            waiting = queued_by_queue(tx)
        queues = (queue_name(settings.pool), queue_name(settings.pool, settings.worker_name))
        if any(waiting.get(queue, 0) for queue in queues):
            raise GiveBack("others have waited long enough")

    @property
    def troubles(self) -> int:
        """Attempts up to this one in a row that kept no chunk: how often trying did not help."""
        return 0 if self._kept else self.claim.job.troubles + 1

    @property
    def _engine_name(self) -> str:
        """What the engine knows this attempt by: a later attempt may run in this same process beside it, and
        must not be taken out with it."""
        return f"{self.claim.job.id}/{self.claim.attempt}"

    # --- steps ----------------------------------------------------------------------------------------------

    def _is_saved(self, piece: Piece) -> bool:
        saved = self._saved.get((piece.channel, piece.index))
        if saved is None:
            return False
        if (saved.core_start, saved.core_end, saved.start, saved.end) != (
            piece.core_start,
            piece.core_end,
            piece.start,
            piece.end,
        ):
            raise SourceChanged(
                f"{self.claim.job.name}: chunk {piece.index} is not where an earlier attempt found it, "
                "so the recording has changed; submit it as a new job."
            )
        self._take(piece, saved.words)
        return True

    def _submit(self, chunk: Chunk, piece: Piece) -> None:
        options = self.claim.job.options
        try:
            future = self.bench.engine.submit(
                self._engine_name,
                chunk.samples,
                self.model,
                SearchOptions(decoder=options.decoder, beam=options.beam),
                self.lease.stop,
            )
        except JobCancelled:
            self.lease.check()  # says which of the two it was
            raise
        self._flying[future] = piece

    def _land(self, seconds: float) -> None:
        """Save what has come back, after waiting up to `seconds` for something to come."""
        landed = wait(self._flying, seconds, FIRST_COMPLETED).done
        for future in landed:
            piece = self._flying[future]
            try:
                result = future.result()
            except SpoolError as error:
                del self._flying[future]
                raise self._named(error, piece) from error
            del self._flying[future]
            self._save(piece, result.words, result.engine_ns)
        if seconds:
            self.check()

    def _named(self, error: SpoolError, piece: Piece) -> SpoolError:
        """The error with the recording's name and the place in it."""
        place = f"{piece.core_start / SAMPLE_RATE:.1f} to {piece.core_end / SAMPLE_RATE:.1f} s"
        return type(error)(f"{self.claim.job.name}: at {place}: {error.message}")

    def _save(self, piece: Piece, heard: tuple[Word, ...], engine_ns: int) -> None:
        """Keep the words and bill the time in one commit; where that fails for good, the time is wasted."""
        offset, last = piece.start / SAMPLE_RATE, piece.end / SAMPLE_RATE
        words = tuple(
            word.model_copy(
                update={
                    # A model's last frame may reach a little beyond the audio.
                    "start": min(round(word.start + offset, 3), last),
                    "end": min(round(word.end + offset, 3), last),
                    "channel": piece.channel,
                }
            )
            for word in heard
        )
        chunk = SavedChunk(
            index=piece.index,
            channel=piece.channel,
            core_start=piece.core_start,
            core_end=piece.core_end,
            start=piece.start,
            end=piece.end,
            words=words,
            engine_ns=engine_ns,
            attempt=self.claim.attempt,
        )
        bill = self.charge(engine_ns, piece.core)
        failpoint("save.begun")
        try:
            patiently(_Commit(self, chunk, bill), self.bench.settings.lease_seconds, self.lease.stop)
        except (LeaseLost, StorageError):
            bill, place = replace(bill, audio_samples=0), (piece.channel, piece.index)
            self.bench.wasted.add(self.claim.job.id, self.claim.attempt, bill, unless_saved=place)
            raise
        self._kept += 1
        self._take(piece, words)

    def _take(self, piece: Piece, words: tuple[Word, ...]) -> None:
        self.heard.append(Heard(piece, words))
        self.done_samples += piece.core

    def charge(self, engine_ns: int, samples: int) -> Charge:
        """What `engine_ns` of this worker's engine for this job is billed as."""
        job, settings = self.claim.job, self.bench.settings
        return Charge(
            worker_id=self.bench.worker_id,
            engine_ns=engine_ns,
            audio_samples=samples,
            price_per_hour_micros=settings.price_per_hour_micros(),
            model=job.options.model,
            pool=settings.pool,
            project=job.project,
        )


@dataclass(slots=True)
class _Commit:
    """Saves one chunk. Called again after a commit without an answer, it looks first whether that one went
    through: billing a chunk twice is as wrong as losing it."""

    attempt: Attempt
    chunk: SavedChunk
    bill: Charge
    tried: bool = False

    def __call__(self) -> None:
        claim = self.attempt.claim
        done = self.attempt.done_samples + self.chunk.core_end - self.chunk.core_start
        with self.attempt.bench.db.begin() as tx:
            if self.tried and any(self._is_this(saved) for saved in saved_chunks(tx, claim.job.id)):
                return
            self.tried = True
            save_chunk(tx, claim, self.chunk, self.bill)
            set_progress(tx, claim, done / self.attempt.channels / SAMPLE_RATE)
            lease = self.attempt.lease
            cancel = renew_lease(tx, claim, self.attempt.bench.settings.lease_seconds, lease.ran_seconds)
            failpoint("save.written")
        failpoint("save.committed")
        if cancel:  # heard here, a cancel need not wait for the next renewal
            self.attempt.lease.cancel()

    def _is_this(self, saved: SavedChunk) -> bool:
        mine = (self.chunk.channel, self.chunk.index, self.attempt.claim.attempt)
        return (saved.channel, saved.index, saved.attempt) == mine
