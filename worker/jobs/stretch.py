"""One attempt at a job that replaces a stretch of another job's transcript.

The recording is read from its beginning, but only the stretch and a little around it is planned, decoded and
billed; cores end at its edges. When the last chunk is saved, the words are put into the other job's
transcript as it is corrected by then.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

from pydantic import JsonValue

from spool.domain.archive.edits import apply_edits
from spool.domain.archive.stretch import Stretch
from spool.domain.receipts import Origin
from spool.domain.recognition import DecodedChunk
from spool.domain.retention import Content
from spool.domain.transcript import ModelFacts, Transcript
from spool.errors import Conflict
from spool.objects import ObjectStore
from spool.objects.integrity import read_verified
from spool.store.deletions import refuse_deleted
from spool.store.jobs import get_job
from spool.store.transcripts.edits import edits_of
from worker.audio import SAMPLE_RATE, AudioStream
from worker.jobs.attempt import Attempt
from worker.jobs.splice import move, splice
from worker.models.requests import DecodeRequest
from worker.segmentation.chunker import Chunk, ChunkOptions
from worker.segmentation.stretch import StretchCore, move_span
from worker.speech.listener import listeners


@dataclass
class StretchAttempt(Attempt):
    """The decoding of one claimed job's stretch."""

    base: Transcript | None = None
    base_key: str = ""

    @property
    def stretch(self) -> Stretch:
        """What the job replaces."""
        stretch = self.claim.job.stretch
        assert stretch is not None
        return stretch

    @property
    def origin(self) -> Origin:
        """The transcript that the other words are taken from, with its corrections."""
        return Origin(job=self.stretch.job, transcript_sha256=self.base_key)

    @property
    def core(self) -> StretchCore:
        """The stretch in samples."""
        assert self.base is not None
        return StretchCore.of(self.stretch, self.base.audio.duration)

    def ready_request(self, objects: ObjectStore) -> DecodeRequest:
        """As `Attempt.ready_request`, once the other job's transcript is read. Raises Deleted, and Conflict
        if there is none."""
        with self.context.db.read() as tx:
            job = get_job(tx, self.stretch.job)
        refuse_deleted(job, Content.TRANSCRIPT)
        if job.transcript_key is None:
            raise Conflict(f"{self.name}: job {job.id} has no transcript to replace a stretch of.")
        record = read_verified(objects, job.transcript_key, job.transcript_sha256 or "")
        self.base = Transcript.model_validate_json(record).with_names(job.speaker_names)
        self.base_key = job.transcript_sha256 or ""
        return super().ready_request(objects)

    def pin(self, expected_seconds: float | None, content_sha256: str | None) -> None:  # noqa: ARG002
        """As `Attempt.pin`; what is to be done is the stretch."""
        first, last = self.core
        super().pin((last - first) / SAMPLE_RATE, content_sha256)

    def plan(self, audio: AudioStream, *, detector: bool) -> Iterable[Chunk]:
        """The chunks of the stretch."""
        assert self.info is not None
        lengths = ChunkOptions(**asdict(self.info.chunking))
        if detector:
            self.listeners = listeners(audio.channels)
        return self.core.plan(self.blocks_of(audio), audio.channels, lengths, self.listeners)

    def transcript(
        self,
        audio: AudioStream,
        job_id: str | None,
        options: dict[str, JsonValue],
        language_model: ModelFacts | None = None,
    ) -> Transcript:
        """The other job's transcript, corrected, with the words of the stretch. Raises StorageError."""
        assert self.base is not None
        spoken, core = self.decoded, self.core
        first = core.first_heard
        heard = min(core.last_heard, audio.samples_read) - first
        self.decoded = list(_as_whole(spoken, first, heard))
        try:
            fresh = self.heard(heard, audio, job_id, options, language_model)
        finally:
            self.decoded = spoken
        with self.context.db.read() as tx:
            edits = edits_of(tx, self.stretch.job)
        start, end = (at / SAMPLE_RATE for at in core)
        fresh = self.with_doubts(move(fresh, first / SAMPLE_RATE))
        return splice(apply_edits(self.base, edits), fresh, start, end).model_copy(
            update={"stretch": self.stretch}
        )

    def transcript_mark(self, of_words: str) -> str:
        """The fingerprint of the transcript, from that of the words in the stretch."""
        facts = [of_words, self.stretch.model_dump(mode="json"), self.base_key]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _as_whole(chunks: Iterable[DecodedChunk], first: int, samples: int) -> Iterator[DecodedChunk]:
    """The chunks as those of a recording of `samples` samples that begins at `first`: the outermost cores
    reach to its ends."""
    ordered = sorted(chunks, key=lambda chunk: (chunk.span.channel, chunk.span.index))
    last = {chunk.span.channel: chunk.span.index for chunk in ordered}
    for chunk in ordered:
        span = move_span(chunk.span, -first)
        if span.index == 0:
            span = replace(span, core_start=0, start=0)
        if span.index == last[span.channel]:
            span = replace(span, core_end=samples, end=samples)
        heard, seconds = chunk.heard, first / SAMPLE_RATE
        words = tuple(
            word.model_copy(
                update={name: max(0.0, round(getattr(word, name) - seconds, 3)) for name in ("start", "end")}
            )
            for word in heard.words
        )
        lattice = heard.lattice and heard.lattice.shift(-seconds, span.channel)
        yield replace(chunk, span=span, heard=replace(heard, words=words, lattice=lattice))
