"""One attempt at a job: sends its chunks to the engine and commits each one as soon as it is decoded.

`Attempt` drives the claim, the chunk plan and the engine's futures. `ChunkCommit` saves one chunk: words,
charge, progress and lease renewal, all or nothing. `TokenContext` keeps the last tokens of each channel for
searches that continue from the previous chunk. Chunks that an earlier attempt saved are not decoded again
(law 4): the plan depends on the samples alone, so it comes out the same. How the job ends is decided in
`worker.jobs.runner`.
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
from spool.store.chunks import SavedChunk, drop_stale, save_chunk, saved_chunks
from spool.store.ledger.charges import Charge
from spool.store.queue.leases import Claim, renew_lease
from spool.store.queue.scheduler import goes_before
from worker.audio import SAMPLE_RATE
from worker.decode.types import CONTEXT_TOKENS, Hypothesis, UtteranceResult
from worker.jobs.lease import Lease
from worker.jobs.request import JobRequest
from worker.jobs.retry import retry_storage
from worker.jobs.tracing import follow
from worker.jobs.transcript import DecodedChunk, decoded_chunk
from worker.models.base import ModelInfo
from worker.segmentation.chunker import Chunk
from worker.segmentation.spans import ChunkSpan
from worker.service.context import WorkerContext
from worker.speech.listener import SpeechListener

Tail = tuple[tuple[int, int], ...]
"""Tokens, each with the sample (16 kHz, from the recording's start) at which it was recognized."""


class TokenContext:
    """The last tokens of each channel of one recording.

    Each token keeps its sample, so that a chunk that overlaps its neighbour continues from the tokens before
    its own first sample and sees no word twice.
    """

    def __init__(self) -> None:
        self._tails: dict[int, Tail] = {}

    def before(self, piece: ChunkSpan) -> tuple[int, ...]:
        """The tokens before the piece's first sample, oldest first."""
        return tuple(token for token, sample in self._heard(piece))

    def after(self, piece: ChunkSpan, best: Hypothesis, samples_a_frame: float) -> Tail:
        """The context for the next chunk, once the piece was recognized as `best`."""
        own = [
            (token, piece.start + round(frame * samples_a_frame))
            for token, frame in zip(best.tokens, best.times, strict=True)
        ]
        return (*self._heard(piece), *own)[-CONTEXT_TOKENS:]

    def keep(self, channel: int, tail: Tail) -> None:
        """Continue this channel from `tail`."""
        self._tails[channel] = tail

    def _heard(self, piece: ChunkSpan) -> Tail:
        return tuple(heard for heard in self._tails.get(piece.channel, ()) if heard[1] < piece.start)


def saved_chunk(chunk: DecodedChunk, engine_ns: int) -> SavedChunk:
    """The chunk as it is saved."""
    span = chunk.span
    return SavedChunk(
        index=span.index,
        channel=span.channel,
        core_start=span.core_start,
        core_end=span.core_end,
        start=span.start,
        end=span.end,
        words=chunk.words,
        engine_ns=engine_ns,
        attempt=0,
        nbest=chunk.nbest,
        lattice=chunk.lattice,
    )


@dataclass(slots=True)
class ChunkCommit:
    """Saves one chunk. Called again after a commit whose outcome is unknown, it first checks whether that
    commit succeeded: billing a chunk twice is as wrong as losing it."""

    attempt: "Attempt"
    chunk: SavedChunk
    bill: Charge
    tried: bool = False

    def __call__(self) -> None:
        """Commit. Raises LeaseLost and StorageError; nothing was written as far as the database reports."""
        claim = self.attempt.claim
        done = self.attempt.done_samples + self.chunk.core_end - self.chunk.core_start
        with self.attempt.context.db.begin() as tx:
            if self.tried and any(self._is_this(saved) for saved in saved_chunks(tx, claim.job.id)):
                return
            self.tried = True
            lease, seconds = self.attempt.lease, done / self.attempt.channels / SAMPLE_RATE
            cancel = renew_lease(
                tx, claim, self.attempt.context.settings.lease_seconds, lease.ran_seconds, seconds
            )
            # Last: the worker's other jobs wait for its row until the commit.
            save_chunk(tx, claim, self.chunk, self.bill)
            failpoint("save.written")
        failpoint("save.committed")
        if cancel:  # so that a cancel does not wait for the next renewal
            self.attempt.lease.cancel()

    def _is_this(self, saved: SavedChunk) -> bool:
        own_key = (self.chunk.channel, self.chunk.index, self.attempt.claim.attempt)
        return (saved.channel, saved.index, saved.attempt) == own_key


log = structlog.get_logger(__name__)

WAIT_SECONDS = 0.5  # how often a waiting job checks for a lost lease, a cancel or a drain
CALLS_PER_YIELD = 10


class GiveBack(Exception):
    """The job goes back to the queue after a saved chunk: the worker is draining, or other jobs have waited
    long enough."""


class TurnOver(GiveBack):
    """Other jobs have waited long enough: this one goes behind them."""


@dataclass(slots=True)
class Attempt:
    """The decoding of one claimed job. `model` is a path or hub id, `request` what each of its chunks is
    asked, `info` whose weights are to answer, `mark` the fingerprint of all three; `done_samples` counts over
    all channels. The time that `listeners` take goes onto the bill of the next chunk that is saved."""

    context: WorkerContext
    claim: Claim
    lease: Lease
    model: str = ""
    request: JobRequest = field(default_factory=JobRequest)
    info: ModelInfo | None = None
    mark: str | None = None
    channels: int = 1
    done_samples: int = 0
    _kept: int = 0
    heard: list[DecodedChunk] = field(default_factory=list)
    _token_context: TokenContext = field(default_factory=TokenContext)
    listeners: list[SpeechListener] = field(default_factory=list)
    _flying: dict[Future[UtteranceResult], ChunkSpan] = field(default_factory=dict)
    _saved: dict[tuple[int, int], SavedChunk] = field(default_factory=dict)
    _begun: float = field(default_factory=time.monotonic)
    _asked: float = field(default_factory=time.monotonic)

    def remember(self) -> None:
        """Load the chunks that earlier attempts saved. Raises StorageError."""
        with self.context.db.read() as tx:
            self._saved = {
                (chunk.channel, chunk.index): chunk for chunk in saved_chunks(tx, self.claim.job.id)
            }

    def begin(self, info: ModelInfo, mark: str) -> None:
        """Decode with these weights from now on. Chunks decoded with other weights are dropped (law 7).

        Raises StorageError and LeaseLost.
        """
        self.info, self.mark = info, mark
        fresh = {place: chunk for place, chunk in self._saved.items() if chunk.fingerprint == mark}
        if len(fresh) < len(self._saved):
            with self.context.db.begin() as tx:
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
            piece = chunk.span
            while self.request.carries and any(
                each.channel == piece.channel for each in self._flying.values()
            ):
                self._land(WAIT_SECONDS)
            if self._is_saved(piece):
                continue
            if not chunk.speech:
                self._save(piece, None)
                continue
            while len(self._flying) >= self.context.engine.options.slots:
                self._land(WAIT_SECONDS)
            self._submit(chunk, piece)
            self._land(0)
        while self._flying:
            self._land(WAIT_SECONDS)
        self._waste_listening()

    def abandon(self) -> None:
        """Leave the engine: take out what waits there, keep what it finishes while the claim holds (law 4),
        and bill the rest as wasted (law 5). Returns when nothing of this attempt is in the engine any
        more."""
        if self._flying:
            self.context.engine.forget(self.engine_name)
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
        self._waste_listening()

    def check(self) -> None:
        """Raise whatever should stop the attempt now."""
        self.lease.check()
        if (why := self.context.rests_because()) is not None:
            raise GiveBack(why)
        settings = self.context.settings
        now = time.monotonic()
        # A turn in which nothing was kept is not over: handing back then would change nothing but the
        # attempt.
        if now - self._begun < settings.yield_seconds or not self._kept:
            return
        if now - self._asked < settings.yield_seconds / CALLS_PER_YIELD:
            return
        self._asked = now
        job = self.claim.job
        with self.context.db.read() as tx:
            over = goes_before(tx, self.context.offer, job.project, job.priority, settings.rules)
        if over:
            raise TurnOver("others have waited long enough")

    @property
    def transient_failures(self) -> int:
        """How many attempts in a row, up to this one, saved no chunk."""
        return 0 if self._kept else self.claim.job.transient_failures + 1

    @property
    def engine_name(self) -> str:
        """What the engine knows this attempt by: a later attempt may run in this same process beside it, and
        must not be taken out with it."""
        return f"{self.claim.job.id}/{self.claim.attempt}"

    # --- steps ----------------------------------------------------------------------------------------------

    def _is_saved(self, piece: ChunkSpan) -> bool:
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
            self._token_context.keep(piece.channel, saved.tail)
        self._take(piece, saved)
        return True

    def _submit(self, chunk: Chunk, piece: ChunkSpan) -> None:
        ask = self.request.ask
        if self.request.carries:
            ask = replace(ask, context=self._token_context.before(piece))
        try:
            future = self.context.engine.submit(
                self.engine_name,
                chunk.samples,
                self.model,
                self.request.options,
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

    def _named(self, error: SpoolError, piece: ChunkSpan) -> SpoolError:
        """The error with the recording's name and the place in it."""
        place = f"{piece.core_start / SAMPLE_RATE:.1f} to {piece.core_end / SAMPLE_RATE:.1f} s"
        return type(error)(f"{self.claim.job.name}: at {place}: {error.message}")

    def _save(self, piece: ChunkSpan, result: UtteranceResult | None) -> None:
        """Keep what was heard and bill the time in one commit; where that fails for good, the time is wasted.

        Without a result the piece is silence. Raises WeightsChanged where others spoke than were asked.
        """
        engine_ns = self._take_listening() + (0 if result is None else result.engine_ns)
        bill, job = self.charge(engine_ns, piece.core), self.claim.job
        if result is not None and self.info is not None and result.weights != self.info.makers:
            self.context.wasted.add(job.id, self.claim.attempt, replace(bill, audio_samples=0), job.batch_id)
            raise WeightsChanged(f"{self.claim.job.name}: {WeightsChanged().message}")
        tail = None
        if result is not None and self.info is not None and self.request.carries:
            frame = self.info.frame_seconds * SAMPLE_RATE
            tail = self._token_context.after(piece, result.hypotheses[0], frame)
        saved = saved_chunk(decoded_chunk(piece, result), engine_ns)
        chunk = replace(saved, attempt=self.claim.attempt, fingerprint=self.mark, tail=tail)
        failpoint("save.begun")
        try:
            retry_storage(
                ChunkCommit(self, chunk, bill), self.context.settings.lease_seconds, self.lease.stop
            )
        except (LeaseLost, StorageError):
            bill, place = replace(bill, audio_samples=0), (piece.channel, piece.index)
            self.context.wasted.add(job.id, self.claim.attempt, bill, job.batch_id, unless_saved=place)
            raise
        self._kept += 1
        self.context.counters.saved(piece.core)
        if chunk.tail is not None:
            self._token_context.keep(piece.channel, chunk.tail)
        self._take(piece, chunk)

    def _take(self, piece: ChunkSpan, chunk: SavedChunk) -> None:
        self.heard.append(DecodedChunk(piece, chunk.words, chunk.nbest, chunk.lattice))
        self.done_samples += piece.core

    def _take_listening(self) -> int:
        """The detector's nanoseconds that are on no bill yet; from now on they count as the engine's."""
        listened_ns = sum(listener.take_ns() for listener in self.listeners)
        self.context.engine.add_busy(listened_ns)
        return listened_ns

    def _waste_listening(self) -> None:
        """Bill what no chunk's bill carries: of chunks that were saved before, or that nobody keeps."""
        bill = self.charge(self._take_listening(), 0)
        self.context.wasted.add(self.claim.job.id, self.claim.attempt, bill, self.claim.job.batch_id)

    def charge(self, engine_ns: int, samples: int) -> Charge:
        """What `engine_ns` of this worker's engine for this job is billed as."""
        job, settings = self.claim.job, self.context.settings
        return Charge(
            worker_id=self.context.worker_id,
            engine_ns=engine_ns,
            audio_samples=samples,
            price_per_hour_micros=settings.price_per_hour_micros(),
            model=job.options.model,
            pool=settings.pool,
            project=job.project,
        )
