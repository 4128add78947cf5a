"""The way from a recording to its decoded chunks, the same for jobs and for `spool-worker transcribe`.

`ChunkDecoder` plans the chunks while the recording is read, sends each one to an engine, keeps what comes
back and puts the transcript together. What an engine is, what stops the decoding and where a chunk is kept is
left to `worker.jobs.attempt` and `worker.local.transcribe`. `TokenContext` keeps the last tokens of each
channel for searches that continue from the previous chunk.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace

from pydantic import JsonValue

from spool import clock
from spool.domain.recognition import ChunkSpan, DecodedChunk, Hypothesis, Recognition
from spool.domain.transcript import ModelFacts, Transcript
from spool.errors import SpoolError
from worker.audio import SAMPLE_RATE, AudioStream
from worker.audio.base import Samples
from worker.jobs.doubts import known_languages, warn_of_doubts
from worker.jobs.transcript import audio_facts, place_chunk, transcript_of
from worker.models.base import ModelInfo
from worker.models.requests import CONTEXT_TOKENS, DecodeRequest
from worker.segmentation.chunker import Chunk, ChunkOptions, plan_channels
from worker.speech.listener import SpeechListener, listeners

WAIT_SECONDS = 0.5
"""How often a decoder that waits for its engine looks whether something should stop it."""


def languages_of(info: ModelInfo, name: str = "") -> tuple[str, ...]:
    """What the model knows, `name` being what the job calls it; empty if nobody can tell."""
    return info.languages or known_languages(info.name) or known_languages(name)


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
        return tuple(token for token, _ in self._tail_before(piece))

    def after(self, piece: ChunkSpan, best: Hypothesis, samples_a_frame: float) -> Tail:
        """The context for the next chunk, once the piece was recognized as `best`."""
        own = [
            (token, piece.start + round(frame * samples_a_frame))
            for token, frame in zip(best.tokens, best.times, strict=True)
        ]
        return (*self._tail_before(piece), *own)[-CONTEXT_TOKENS:]

    def keep(self, channel: int, tail: Tail) -> None:
        """Continue this channel from `tail`."""
        self._tails[channel] = tail

    def _tail_before(self, piece: ChunkSpan) -> Tail:
        return tuple(each for each in self._tails.get(piece.channel, ()) if each[1] < piece.start)


@dataclass(slots=True, kw_only=True)
class ChunkDecoder(ABC):
    """Decodes one recording. `request` is what each of its chunks is asked, `info` says whose weights answer;
    `listeners` are the speech detector's, one a channel, or none."""

    request: DecodeRequest = field(default_factory=DecodeRequest)
    info: ModelInfo | None = None
    listeners: list[SpeechListener] = field(default_factory=list)
    decoded: list[DecodedChunk] = field(default_factory=list)
    token_context: TokenContext = field(default_factory=TokenContext)
    in_flight: dict[Future[Recognition], ChunkSpan] = field(default_factory=dict)

    # --- what differs between engines -----------------------------------------------------------------------

    @property
    @abstractmethod
    def name(self) -> str:
        """The recording's, for errors."""

    @abstractmethod
    def submit(self, chunk: Chunk, request: DecodeRequest) -> Future[Recognition]:
        """Send a chunk to the engine."""

    @abstractmethod
    def keep(self, answers: Sequence[tuple[ChunkSpan, Recognition]]) -> None:
        """Add the chunks to `decoded`; silence is an empty recognition."""

    def has_room(self) -> bool:
        """Whether the engine takes another chunk now."""
        return True

    def is_known(self, span: ChunkSpan) -> bool:  # noqa: ARG002 - for those who know some
        """Whether the chunk was decoded before; it is then among `decoded`."""
        return False

    def check(self) -> None:  # noqa: B027 - nothing stops some
        """Raise whatever should stop the decoding now."""

    def wait_for_answers(self, seconds: float) -> set[Future[Recognition]]:
        """What has come back, after waiting up to `seconds` for something to come."""
        return clock.wait_for_first(self.in_flight, seconds)

    # --- what is the same -----------------------------------------------------------------------------------

    def plan(self, audio: AudioStream, *, detector: bool) -> Iterable[Chunk]:
        """The chunks of every channel, as the recording is read."""
        assert self.info is not None
        lengths = ChunkOptions(**asdict(self.info.chunking))
        if detector:
            self.listeners = listeners(audio.channels)
        return plan_channels(self.blocks_of(audio), audio.channels, lengths, self.listeners)

    def blocks_of(self, audio: AudioStream) -> Iterable[Samples]:
        """The recording's blocks."""
        return audio.blocks()

    def send(self, chunks: Iterable[Chunk]) -> None:
        """Send every chunk that is not known to the engine, and keep what comes back meanwhile.

        Raises what `check` raises, or the SpoolError of the recording or of one of its utterances.
        """
        for chunk in chunks:
            self.check()
            span, request = chunk.span, self.request
            while self.request.carries and any(
                each.channel == span.channel for each in self.in_flight.values()
            ):
                self._take_answers(WAIT_SECONDS)
            if self.is_known(span):
                continue
            if not chunk.speech:
                self.keep([(span, Recognition())])
                continue
            while not self.has_room():
                self._take_answers(WAIT_SECONDS)
            if self.request.carries:
                request = request.model_copy(update={"context": self.token_context.before(span)})
            self.in_flight[self.submit(chunk, request)] = span
            self._take_answers(0)

    def finish(self) -> None:
        """Wait for what is still in the engine; `decoded` is then complete. Raises as `send` does."""
        while self.in_flight:
            self._take_answers(WAIT_SECONDS)

    def transcript(
        self,
        audio: AudioStream,
        job_id: str | None,
        options: dict[str, JsonValue],
        language_model: ModelFacts | None = None,
    ) -> Transcript:
        """All chunks as one transcript of `audio`, which was read to its end and may be closed."""
        heard = self.heard(audio.samples_read, audio, job_id, options, language_model)
        return heard if options.get("align") is not None else self.with_doubts(heard)  # its words are given

    def heard(
        self,
        samples: int,
        audio: AudioStream,
        job_id: str | None,
        options: dict[str, JsonValue],
        language_model: ModelFacts | None,
    ) -> Transcript:
        """All chunks as one transcript of `samples` samples."""
        assert self.info is not None
        return transcript_of(
            job_id,
            self.decoded,
            samples,
            audio_facts(self.name, audio),
            ModelFacts(name=self.info.name, sha256=self.info.sha256),
            options,
            language_model,
            self.listeners,
            self.info.warnings,
        )

    def with_doubts(self, transcript: Transcript) -> Transcript:
        """The transcript with a warning if its own words speak against it."""
        assert self.info is not None
        doubts = warn_of_doubts(transcript, languages_of(self.info))
        return transcript.model_copy(update={"warnings": (*transcript.warnings, *doubts)})

    def place_chunk(self, span: ChunkSpan, heard: Recognition) -> DecodedChunk:
        """The chunk, and where the next chunk's search goes on if it does."""
        chunk = place_chunk(span, heard)
        if not heard.hypotheses or self.info is None or not self.request.carries:
            return chunk
        frame = self.info.frame_seconds * SAMPLE_RATE
        return replace(chunk, tail=self.token_context.after(span, heard.hypotheses[0], frame))

    def add(self, chunk: DecodedChunk) -> None:
        """Take the chunk into the transcript."""
        if chunk.tail is not None:
            self.token_context.keep(chunk.span.channel, chunk.tail)
        self.decoded.append(chunk)

    def _take_answers(self, seconds: float) -> None:
        """Keep what has come back, after waiting up to `seconds` for something to come."""
        done = self.wait_for_answers(seconds)
        answers: list[tuple[ChunkSpan, Recognition]] = []
        error: SpoolError | None = None
        for future in [each for each in self.in_flight if each in done]:
            span = self.in_flight.pop(future)
            try:
                answers.append((span, future.result()))
            except SpoolError as failure:
                place = f"{span.core_start / SAMPLE_RATE:.1f} to {span.core_end / SAMPLE_RATE:.1f} s"
                error = type(failure)(f"{self.name}: at {place}: {failure.message}")
                error.__cause__ = failure
                break
        if answers:
            self.keep(answers)
        if error is not None:
            raise error
        if seconds:
            self.check()
