"""One attempt at a job: sends its chunks to the engine and commits them as soon as they are decoded.

`Attempt` is the decoding of `worker.jobs.decoding` under a claim. Chunks that come back together are one
commit: words, charge, progress and lease renewal, all or nothing. Chunks that an earlier attempt saved, or
that the engine of its killed worker has handed over, are not decoded again (law 4): the plan depends on the
samples alone, so it comes out the same. How the job ends is decided in `worker.jobs.runner`.
"""

import contextlib
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import structlog
from sqlalchemy import Connection

from spool import clock
from spool.answering import Answering
from spool.domain.receipts import Origin
from spool.domain.recognition import ChunkSpan, DecodedChunk, Recognition
from spool.errors import JobCancelled, LeaseLost, SourceChanged, SpoolError, StorageError, WeightsChanged
from spool.failpoints import failpoint
from spool.objects import ObjectStore
from spool.store.chunks import drop_stale, load_chunks, save_chunks
from spool.store.ledger.charges import Charge
from spool.store.queue.leases import Claim, renew_lease, set_progress
from spool.store.queue.scheduler import goes_before
from worker.audio import SAMPLE_RATE, AudioStream
from worker.audio.base import Samples
from worker.engine.handover import HandedOver
from worker.jobs.decoding import ChunkDecoder
from worker.jobs.lease import Lease
from worker.jobs.places import Places
from worker.jobs.request import job_request_of
from worker.jobs.retry import retry_storage
from worker.jobs.tracing import follow
from worker.models.base import ModelInfo
from worker.models.requests import DecodeRequest
from worker.segmentation.chunker import Chunk
from worker.service.context import WorkerContext
from worker.sources.language_models import fetch_language_model

BilledChunk = tuple[DecodedChunk, Charge]
"""A chunk to save, and the charge for it."""

log = structlog.get_logger(__name__)

CALLS_PER_YIELD = 10
SHORT_SECONDS = 60.0


class GiveBack(Exception):
    """The job goes back to the queue after a saved chunk: the worker is draining, or other jobs have waited
    long enough."""


class TurnOver(GiveBack):
    """Other jobs have waited long enough: this one goes behind them."""


@dataclass(slots=True)
class Attempt(ChunkDecoder):
    """The decoding of one claimed job. `model` is a path or hub id, `mark` the fingerprint of the model, the
    request and the weights; `done_samples` counts what is saved, over all channels and attempts; `engine_ns`
    adds up its chunks; `unpinned` are length and SHA-256 of the recording until they are written; `last` is
    the last chunk of a short one, which is saved with the ending; `places` are picked for whoever listens
    to them afterwards. The time that `listeners` take goes onto
    the bill of the next chunk that is saved."""

    context: WorkerContext
    claim: Claim
    lease: Lease
    model: str = ""
    mark: str | None = None
    channels: int = 1
    done_samples: int = 0
    engine_ns: int = 0
    unpinned: tuple[float | None, str | None] = (None, None)
    last: BilledChunk | None = None
    places: Places | None = None
    _content: str | None = None
    _handed: HandedOver | None = None
    _short: bool = False
    _sent: bool = False
    _kept: int = 0
    _saved: dict[tuple[int, int], DecodedChunk] = field(default_factory=dict)
    _begun: float = field(default_factory=clock.monotonic)
    _asked: float = field(default_factory=clock.monotonic)
    answering: Answering = field(init=False)
    """By which the recording is read."""

    def __post_init__(self) -> None:
        job = self.claim.job
        self.answering = Answering(job.name, threaded=job.source.kind == "file")

    def remember(self) -> None:
        """Load the chunks that earlier attempts saved, once no engine of a killed worker of this host may
        still add to them. Raises StorageError, and what `check` raises."""
        if self.claim.attempt == 1:
            return
        self.context.handover.wait(self.check)
        with self.context.db.read() as tx:
            self._saved = {
                (chunk.span.channel, chunk.span.index): chunk for chunk in load_chunks(tx, self.claim.job.id)
            }

    def pin(self, expected_seconds: float | None, content_sha256: str | None) -> None:
        """Note what is decoded from here on: every later attempt that finds a chunk of this one has to find
        the same bytes. Of a short recording it is written with its first chunk."""
        self._content = content_sha256
        if expected_seconds is not None and expected_seconds <= SHORT_SECONDS:
            self.unpinned, self._short = (expected_seconds, content_sha256), True
            return

        def commit() -> None:
            done_seconds = self.done_samples / self.channels / SAMPLE_RATE
            with self.context.db.begin() as tx:
                set_progress(tx, self.claim, done_seconds, expected_seconds, content_sha256)

        retry_storage(commit, self.context.outage_seconds, self.lease.stop)

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
        self._handed = self.context.handover.take(f"{self.claim.job.id}/{self.claim.attempt - 1}")
        self.done_samples = sum(chunk.span.core for chunk in fresh.values())

    @property
    def origin(self) -> Origin | None:
        """The transcript of the words that are not decoded, if only some are."""
        return None

    def ready_request(self, objects: ObjectStore) -> DecodeRequest:
        """The request for each chunk, not yet checked against the model. Raises as `job_request_of` and
        `fetch_language_model`."""
        job, context = self.claim.job, self.context
        rescoring = job.options.rescore
        names = job.options.language_model, None if rescoring is None else rescoring.language_model
        hears, reads = (
            fetch_language_model(context.settings, context.db, objects, job, name) for name in names
        )
        return job_request_of(job.options, context.settings, context.db, job.name, hears, reads)

    @property
    def saved(self) -> list[DecodedChunk]:
        """What earlier attempts saved, in order."""
        return [self._saved[place] for place in sorted(self._saved)]

    def decode(self, chunks: Iterable[Chunk]) -> None:
        """Send every chunk that is not saved to the engine and save what comes back; `decoded` is then
        complete.

        Raises what stops the attempt: GiveBack, LeaseLost, JobCancelled, StorageError, or the SpoolError of
        the recording or of one of its utterances.
        """
        self.send(chunks)
        self._sent = True
        self.finish()
        self._waste_listening()

    def abandon(self) -> None:
        """Leave the engine: take out what waits there, keep what it finishes while the claim holds (law 4),
        and bill the rest as wasted (law 5). Returns when nothing of this attempt is in the engine any
        more."""
        if self.in_flight:
            self.context.engine.forget(self.engine_name)
        results: list[tuple[ChunkSpan, Recognition]] = []
        for future, span in self.in_flight.items():
            with contextlib.suppress(SpoolError):
                results.append((span, future.result()))
        self.in_flight.clear()
        if results:
            try:
                self.keep(results)
            except SpoolError as error:
                log.info("finished chunks not kept", chunks=len(results), reason=error.code)
        self.save_last()
        self._waste_listening()

    def check(self) -> None:
        """Raise whatever should stop the attempt now."""
        self.lease.check()
        if (why := self.context.rests_because()) is not None:
            raise GiveBack(why)
        settings = self.context.settings
        now = clock.monotonic()
        # A turn in which nothing was kept is not over: handing back then would change nothing but the
        # attempt.
        if now - self._begun < settings.yield_seconds or not self._kept:
            return
        if now - self._asked < settings.yield_seconds / CALLS_PER_YIELD:
            return
        self._asked = now
        job = self.claim.job
        over = False
        with contextlib.suppress(StorageError), self.context.db.read() as tx:
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

    @property
    def name(self) -> str:
        return self.claim.job.name

    def blocks_of(self, audio: AudioStream) -> Iterable[Samples]:
        """The recording's blocks. Raises StorageError if its share stops answering."""
        return self.answering.each(audio.blocks())

    # --- steps ----------------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether the engine has a slot for one more chunk of this job."""
        return len(self.in_flight) < self.context.engine.options.slots

    def is_known(self, span: ChunkSpan) -> bool:
        """Whether an earlier attempt saved the chunk, or it was handed over and is saved now. Raises
        SourceChanged, LeaseLost and StorageError."""
        saved = self._saved.get((span.channel, span.index))
        if saved is None:
            return self._take_over(span)
        if replace(saved.span, speech=span.speech) != span:
            raise SourceChanged(
                f"{self.claim.job.name}: chunk {span.index} is not where an earlier attempt found it, "
                "so the recording has changed; submit it as a new job."
            )
        self.add(replace(saved, span=span))
        return True

    def _take_over(self, span: ChunkSpan) -> bool:
        """Save the chunk if the engine of a killed worker has handed it over, on the bill of that worker."""
        heard = None if self._handed is None else self._handed.answers.pop(self._mark_of(span), None)
        if self._handed is None or heard is None or self.info is None or heard.makers != self.info.makers:
            return False
        bill = replace(self.charge(heard.engine_ns, span.core), worker_id=self._handed.worker_id)
        self.commit_chunks([(self.place_chunk(span, heard), bill)])
        return True

    def _mark_of(self, span: ChunkSpan) -> str:
        """What the chunk's answer depends on; empty where nobody knows the recording's bytes."""
        if self._content is None:
            return ""
        place = span.channel, span.index, span.core_start, span.core_end, span.start, span.end
        return "/".join(map(str, (self.mark, self._content, *place)))

    def submit(self, chunk: Chunk, request: DecodeRequest) -> Future[Recognition]:
        """To the engine's child, where it waits while all slots are taken."""
        try:
            future = self.context.engine.submit(
                self.engine_name,
                chunk.samples,
                self.model,
                request,
                self.lease.stop,
                self._mark_of(chunk.span),
                self.claim.job.priority,
            )
        except JobCancelled:
            self.lease.check()  # says which of the two it was
            raise
        follow(future, chunk.span, self.claim.job.ids)
        return future

    def keep(self, answers: Sequence[tuple[ChunkSpan, Recognition]]) -> None:
        """Save the chunks and bill their time in one commit; where that fails for good, the time is wasted.

        Raises WeightsChanged if another model answered; what the right one answered is saved.
        """
        chunks: list[BilledChunk] = []
        changed: list[tuple[ChunkSpan, Charge]] = []
        for span, answer in answers:
            heard = replace(answer, engine_ns=answer.engine_ns + self._take_listening())
            self.engine_ns += heard.engine_ns
            if self.info is not None and heard.makers not in ((), self.info.makers):
                changed.append((span, self.charge(heard.engine_ns, 0)))
                continue
            chunks.append((self.place_chunk(span, heard), self.charge(heard.engine_ns, span.core)))
        if chunks:
            self.commit_chunks(chunks)
        for span, bill in changed:
            self._settle(span)
            self._waste(bill)
        if changed:
            raise WeightsChanged(f"{self.name}: {WeightsChanged().message}")

    def drop_intermediate(self, tx: Connection) -> None:
        """Drop what was kept for the transcript alone, in the commit that ends the job."""

    def commit_chunks(self, decoded: Sequence[BilledChunk]) -> None:
        """Commit the chunks with their bills; the last one of a short recording is left to the ending."""
        attempt, mark = self.claim.attempt, self.mark
        chunks = [(replace(chunk, attempt=attempt, fingerprint=mark), bill) for chunk, bill in decoded]
        failpoint("save.begun")
        if len(chunks) == 1 and self._short and self._sent and not self.in_flight and self._ends_at_once:
            self.last = chunks[0]
        else:
            self._commit(chunks, self.done_samples + sum(chunk.span.core for chunk, _ in chunks))
        for chunk, _ in chunks:
            self.add(chunk)
            self.done_samples += chunk.span.core

    def note_ending(self) -> None:
        """The job's ending is committed, with the last chunk if that was left to it."""
        if self.last is not None:
            self._count(self.last[0].span)
            self.last = None

    @property
    def _ends_at_once(self) -> bool:
        """Whether the ending follows the last chunk without another look at the recording."""
        options = self.claim.job.options
        heard_again = self.places is not None and self.places.kept
        return (
            options.diarization is None and options.align is None and not options.witness and not heard_again
        )

    def save_last(self) -> None:
        """Commit the chunk that was left to an ending which did not come."""
        last, self.last = self.last, None
        if last is None:
            return
        try:
            # The ending's commit may have gone through, although nobody heard of it.
            self._commit([last], self.done_samples, tried=True)
        except SpoolError as error:
            log.info("finished chunk not kept", chunk=last[0].span.index, reason=error.code)

    def _commit(self, chunks: Sequence[BilledChunk], done_samples: int, *, tried: bool = False) -> None:
        """Save the chunks, renew the lease and note the progress. Where the outcome of an earlier try is
        unknown (`tried`), first look whether it succeeded: billing a chunk twice is as wrong as losing it."""

        def commit() -> None:
            nonlocal tried
            with self.context.db.begin() as tx:
                if tried and self._are_saved(tx, chunks):
                    return
                tried = True
                cancel = renew_lease(
                    tx,
                    self.claim,
                    self.context.settings.lease_seconds,
                    self.lease.ran_seconds,
                    done_samples / self.channels / SAMPLE_RATE,
                    *self.unpinned,
                )
                # Last: the worker's other jobs wait for its row until the commit.
                save_chunks(tx, self.claim, chunks)
                failpoint("save.written")
            failpoint("save.committed")
            self.unpinned = (None, None)
            if cancel:  # so that a cancel does not wait for the next renewal
                self.lease.cancel()

        try:
            retry_storage(commit, self.context.outage_seconds, self.lease.stop)
        except (LeaseLost, StorageError):
            for chunk, bill in chunks:
                self._settle(chunk.span)
                place = chunk.span.channel, chunk.span.index
                self._waste(replace(bill, audio_samples=0), unless_saved=place)
            raise
        for chunk, _ in chunks:
            self._count(chunk.span)

    def _are_saved(self, tx: Connection, chunks: Sequence[BilledChunk]) -> bool:
        saved = {
            (each.span.channel, each.span.index, each.attempt) for each in load_chunks(tx, self.claim.job.id)
        }
        return all((each.span.channel, each.span.index, self.claim.attempt) in saved for each, _ in chunks)

    def _waste(self, bill: Charge, unless_saved: tuple[int, int] | None = None) -> None:
        job = self.claim.job
        self.context.wasted.add(job.id, self.claim.attempt, bill, job.batch_id, unless_saved=unless_saved)

    def _count(self, span: ChunkSpan) -> None:
        self._kept += 1
        self._settle(span)
        self.context.counters.count_chunk(span.core)

    def _settle(self, span: ChunkSpan) -> None:
        """The chunk is saved, or about to be billed as wasted: nobody else may save it any more."""
        self.context.engine.settle(self.engine_name, self._mark_of(span))

    def _take_listening(self) -> int:
        """The detector's nanoseconds that are on no bill yet; from now on they count as the engine's."""
        listened_ns = sum(listener.take_ns() for listener in self.listeners)
        self.context.engine.add_busy(listened_ns)
        return listened_ns

    def _waste_listening(self) -> None:
        """Bill what no chunk's bill carries: of chunks that were saved before, or that nobody keeps."""
        self._waste(self.charge(self._take_listening(), 0))

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
