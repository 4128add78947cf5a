"""One attempt at a job: its chunks to the engine and back, each saved as soon as it is finished.

Knows the claim, the chunk plan and the engine's futures; how the job ends is `worker.job`'s business. What
an earlier attempt saved is not decoded again (law 4): the plan depends on the samples alone, so it comes
out the same.
"""

import time
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace

import structlog

from spool.errors import (
    JobCancelled,
    LeaseLost,
    SourceChanged,
    SpoolError,
    StorageError,
    WeightsChanged,
)
from spool.failpoints import failpoint
from spool.store.choosing import goes_before
from spool.store.chunks import SavedChunk, drop_stale, saved_chunks
from spool.store.claims import Claim
from spool.store.costs import Charge
from worker.asking import Asking
from worker.assemble import Heard, Piece
from worker.audio import SAMPLE_RATE
from worker.chunk_commit import ChunkCommit, chunk_of
from worker.chunks import Chunk
from worker.context import Context
from worker.decode.hypothesis import UtteranceResult
from worker.engine_protocol import ModelInfo
from worker.lease import Lease
from worker.patience import patiently
from worker.traced import follow
from worker.workbench import Bench

log = structlog.get_logger(__name__)

WAIT_SECONDS = 0.5  # how often a waiting job looks up: for a lost lease, a cancel, a drain
CALLS_PER_YIELD = 10


class GiveBack(Exception):
    """The job goes back into the queue at a saved chunk: the worker drains, or others have waited long
    enough."""


class TurnOver(GiveBack):
    """Others have waited long enough: the job goes behind them."""


@dataclass(slots=True)
class Attempt:
    """The decoding of one claimed job. `model` is a path or hub id, `asking` what each of its chunks is
    asked, `info` whose weights are to answer, `mark` the fingerprint of all three; `done_samples` counts over
    all channels."""

    bench: Bench
    claim: Claim
    lease: Lease
    model: str = ""
    asking: Asking = field(default_factory=Asking)
    info: ModelInfo | None = None
    mark: str | None = None
    channels: int = 1
    done_samples: int = 0
    _kept: int = 0
    heard: list[Heard] = field(default_factory=list)
    _context: Context = field(default_factory=Context)
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

    def begin(self, info: ModelInfo, mark: str) -> None:
        """Decode by these weights from here on. What others decoded is of no use (law 7) and is taken out.

        Raises StorageError and LeaseLost.
        """
        self.info, self.mark = info, mark
        fresh = {place: chunk for place, chunk in self._saved.items() if chunk.fingerprint == mark}
        if len(fresh) < len(self._saved):
            with self.bench.db.begin() as tx:
                gone = drop_stale(tx, self.claim, mark)
            log.info("chunks of other weights or options taken out", chunks=gone)
        self._saved = fresh

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
            while self.asking.carries and any(
                each.channel == piece.channel for each in self._flying.values()
            ):
                self._land(WAIT_SECONDS)
            if self._is_saved(piece):
                continue
            if not chunk.speech:
                self._save(piece, None)
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
                self._save(piece, result)
            except SpoolError as error:
                log.info("finished chunk not kept", chunk=piece.index, reason=error.code)
        self._flying.clear()

    def check(self) -> None:
        """Raise what should stop the attempt now."""
        self.lease.check()
        if (why := self.bench.rests_because()) is not None:
            raise GiveBack(why)
        settings = self.bench.settings
        now = time.monotonic()
        # A turn in which nothing was kept is not over: handing back then would change nothing but the
        # attempt.
        if now - self._begun < settings.yield_seconds or not self._kept:
            return
        if now - self._asked < settings.yield_seconds / CALLS_PER_YIELD:
            return
        self._asked = now
        job = self.claim.job
        with self.bench.db.read() as tx:
            over = goes_before(
                tx, settings.pool, settings.worker_name, job.project, job.priority, settings.rules
            )
        if over:
            raise TurnOver("others have waited long enough")

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
        if saved.tail is not None:
            self._context.keep(piece.channel, saved.tail)
        self._take(piece, saved)
        return True

    def _submit(self, chunk: Chunk, piece: Piece) -> None:
        ask = self.asking.ask
        if self.asking.carries:
            ask = replace(ask, context=self._context.before(piece))
        try:
            future = self.bench.engine.submit(
                self._engine_name,
                chunk.samples,
                self.model,
                self.asking.options,
                self.lease.stop,
                ask,
            )
        except JobCancelled:
            self.lease.check()  # says which of the two it was
            raise
        follow(future, piece, self.claim.job.ids)
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
            self._save(piece, result)
        if seconds:
            self.check()

    def _named(self, error: SpoolError, piece: Piece) -> SpoolError:
        """The error with the recording's name and the place in it."""
        place = f"{piece.core_start / SAMPLE_RATE:.1f} to {piece.core_end / SAMPLE_RATE:.1f} s"
        return type(error)(f"{self.claim.job.name}: at {place}: {error.message}")

    def _save(self, piece: Piece, result: UtteranceResult | None) -> None:
        """Keep what was heard and bill the time in one commit; where that fails for good, the time is wasted.

        Without a result the piece is silence. Raises WeightsChanged where others spoke than were asked.
        """
        engine_ns = 0 if result is None else result.engine_ns
        bill, job = self.charge(engine_ns, piece.core), self.claim.job
        if result is not None and self.info is not None and result.weights != self.info.files:
            self.bench.wasted.add(job.id, self.claim.attempt, replace(bill, audio_samples=0), job.batch_id)
            raise WeightsChanged(f"{self.claim.job.name}: {WeightsChanged().message}")
        tail = None
        if result is not None and self.info is not None and self.asking.carries:
            frame = self.info.frame_seconds * SAMPLE_RATE
            tail = self._context.after(piece, result.hypotheses[0], frame)
        chunk = replace(chunk_of(piece, result), attempt=self.claim.attempt, fingerprint=self.mark, tail=tail)
        failpoint("save.begun")
        try:
            patiently(ChunkCommit(self, chunk, bill), self.bench.settings.lease_seconds, self.lease.stop)
        except (LeaseLost, StorageError):
            bill, place = replace(bill, audio_samples=0), (piece.channel, piece.index)
            self.bench.wasted.add(job.id, self.claim.attempt, bill, job.batch_id, unless_saved=place)
            raise
        self._kept += 1
        self.bench.tally.saved(piece.core)
        if chunk.tail is not None:
            self._context.keep(piece.channel, chunk.tail)
        self._take(piece, chunk)

    def _take(self, piece: Piece, chunk: SavedChunk) -> None:
        self.heard.append(Heard(piece, chunk.words, chunk.nbest, chunk.lattice))
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
