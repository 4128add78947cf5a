"""One attempt at a job whose words are given.

Its chunks go to the engine, are saved and billed as those of any job, each with what the CTC head says of the
text's tokens, so an attempt that follows hears no chunk twice (law 4). When the last one is saved, the words
are placed; that takes no engine. Until the job ends the chunks show the words that the model heard.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pydantic import JsonValue
from sqlalchemy import Connection

from spool.domain.archive.alignment import Typescript
from spool.domain.recognition import ChunkSpan, DecodedChunk, Recognition
from spool.domain.transcript import ModelFacts, Transcript
from spool.failpoints import failpoint
from spool.objects import ObjectStore
from spool.store.archive.typescripts import typescript_of
from spool.store.chunks import drop_emissions
from worker.audio import AudioStream
from worker.jobs.align.assembly import (
    align_text,
    chunk_request,
    emissions_in_core,
    refuse_too_many,
    spell_request,
)
from worker.jobs.attempt import Attempt
from worker.models.base import ModelInfo
from worker.models.requests import DecodeRequest
from worker.segmentation.chunker import Chunk


@dataclass
class AlignAttempt(Attempt):
    """The alignment of one claimed job's text with its recording."""

    text: Typescript = field(default_factory=lambda: Typescript(()))

    def ready_request(self, objects: ObjectStore) -> DecodeRequest:  # noqa: ARG002 - only the text is needed
        """The text's words, for the model to spell. Raises NotFound where the text was deleted."""
        job = self.claim.job
        assert job.options.align is not None
        with self.context.db.read() as tx:
            self.text = typescript_of(tx, job.id, job.options.align.sha256)
        return spell_request(self.text)

    def begin(self, info: ModelInfo, mark: str) -> None:
        """As `Attempt.begin`; from now on chunks are asked for the tokens of the text."""
        super().begin(info, mark)
        assert info.spelling is not None
        self.request = chunk_request(info.spelling)

    def plan(self, audio: AudioStream, *, detector: bool) -> Iterable[Chunk]:
        """As `ChunkDecoder.plan`. Raises InvalidRequest where the header says that the recording is too
        short for the text."""
        refuse_too_many(self.name, self.text, audio.known_length.expected_seconds)
        return super().plan(audio, detector=detector)

    def drop_intermediate(self, tx: Connection) -> None:
        """Drop what the head said of the tokens; the words have their places now."""
        drop_emissions(tx, self.claim.job.id)

    def place_chunk(self, span: ChunkSpan, heard: Recognition) -> DecodedChunk:
        """The words that were heard, with what the head says of the text's tokens."""
        assert self.info is not None
        emissions = emissions_in_core(span, heard, self.info.frame_seconds)
        return replace(super().place_chunk(span, heard), emissions=emissions)

    def transcript(
        self,
        audio: AudioStream,
        job_id: str | None,
        options: dict[str, JsonValue],
        language_model: ModelFacts | None = None,
    ) -> Transcript:
        """The words of the text at their times. Raises what `check` raises, and InvalidRequest for a text too
        long for the recording."""
        assert self.info is not None
        heard = super().transcript(audio, job_id, options, language_model)
        failpoint("align.placing")
        return align_text(heard, self.decoded, self.text, self.info, self.check)
