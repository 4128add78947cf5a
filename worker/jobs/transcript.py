"""From the chunks of one recording to its transcript: stitched words, segments, and what was covered (law 6).

Knows numbers and words; calls no engine and no store.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import JsonValue

from spool.domain.options import JobOptions, OnTruncated
from spool.domain.transcript import (
    AudioFacts,
    ChunkLanguage,
    ChunkNbest,
    Coverage,
    Gap,
    Lattice,
    ModelFacts,
    NbestText,
    Transcript,
    Word,
)
from spool.errors import AudioTruncated, SpoolError
from spool.store.chunks import SavedChunk
from worker.audio import SAMPLE_RATE, AudioStream
from worker.audio.stated_length import Length, describe_shortfall
from worker.decode.types import Hypothesis
from worker.decode.words import SCORE_DIGITS
from worker.jobs.languages import language_spans, main_language
from worker.jobs.speech_check import check_words, find_invented_lists
from worker.models.base import ModelInfo
from worker.segmentation.spans import ChunkSpan
from worker.segmentation.stitch import ChunkWords, stitch
from worker.speech.listener import SpeechListener


@dataclass(frozen=True, slots=True)
class DecodedChunk:
    """A chunk's place and the words heard in it, in seconds of the recording; its hypotheses and its lattice,
    where asked for; the language of its words, where the model tells; what the head says of a given text."""

    span: ChunkSpan
    words: tuple[Word, ...]
    nbest: tuple[NbestText, ...] = ()
    lattice: Lattice | None = None
    language: ChunkLanguage | None = None
    emissions: bytes | None = None


class Recognized(Protocol):
    """What the engine answers for an utterance, with times in seconds from the utterance's start."""

    @property
    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The hypotheses, best first."""

    @property
    def words(self) -> tuple[Word, ...]:
        """Of the best hypothesis."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Of each hypothesis, where more than one was asked for."""

    @property
    def lattice(self) -> Lattice | None:
        """Where it was asked for."""

    @property
    def language(self) -> str | None:
        """Which one it was read in, where the model tells."""

    @property
    def languages(self) -> tuple[tuple[str, float], ...]:
        """The likeliest, where the model was left to find out."""


def decoded_chunk(span: ChunkSpan, result: Recognized | None) -> DecodedChunk:
    """The chunk with its words, in seconds of the recording; without a result it is silence. Scores are
    rounded so that they do not depend on the batch."""
    if result is None:
        return DecodedChunk(span, ())
    offset, last = span.start / SAMPLE_RATE, span.end / SAMPLE_RATE
    words = tuple(
        word.model_copy(
            update={
                # A model's last frame may reach a little beyond the audio.
                "start": min(round(word.start + offset, 3), last),
                "end": min(round(word.end + offset, 3), last),
                "channel": span.channel,
            }
        )
        for word in result.words
    )
    nbest = tuple(
        NbestText(text=text, score=round(hypothesis.score, SCORE_DIGITS))
        for text, hypothesis in zip(result.texts, result.hypotheses, strict=False)
    )
    lattice = result.lattice and result.lattice.shift(offset, span.channel)
    language = None
    if words and result.language is not None:
        language = ChunkLanguage(code=result.language, probabilities=dict(result.languages))
    return DecodedChunk(span, words, nbest, lattice, language)


def saved_chunk(chunk: DecodedChunk, engine_ns: int, tail: tuple[tuple[int, int], ...] | None) -> SavedChunk:
    """The chunk as it is saved by an attempt, which adds its number and fingerprint."""
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
        tail=tail,
        lattice=chunk.lattice,
        language=chunk.language,
        emissions=chunk.emissions,
    )


def transcript_of(
    job_id: str | None,
    heard: Sequence[DecodedChunk],
    samples: int,
    audio: AudioFacts,
    model: ModelFacts,
    options: dict[str, JsonValue],
    language_model: ModelFacts | None = None,
    listeners: Sequence[SpeechListener] = (),
    warnings: tuple[str, ...] = (),
) -> Transcript:
    """The transcript of a recording of `samples` samples a channel, without the segments over which its
    `listeners` (one for each channel, or none) heard nobody, and without the n-best lists and lattices of
    chunks that have no other words. Raises SpoolError where a sample is in no core or in two: that is our own
    fault, and never a silence."""
    coverage = coverage_of([item.span for item in heard], samples)
    if coverage.ratio != 1 or coverage.gaps:
        raise SpoolError(f"{audio.name}: the chunks do not cover the recording: {coverage.gaps[:3]}.")
    words = stitch([ChunkWords(item.span, item.words) for item in heard])
    checked = check_words(words, listeners)
    languages = language_spans([(item.span, item.language) for item in heard if item.language is not None])
    invented = find_invented_lists([item.words for item in heard], checked)
    believed = [item for item, gone in zip(heard, invented, strict=True) if not gone]
    in_order = sorted(believed, key=lambda item: (item.span.start, item.span.channel))
    return Transcript(
        job=job_id,
        audio=audio,
        model=model,
        language_model=language_model,
        options=options,
        warnings=warnings,
        coverage=coverage.model_copy(update={"speech": checked.coverage}),
        text=" ".join(word.text for word in checked.words),
        words=checked.words,
        segments=checked.segments,
        speech=checked.spans,
        dropped=checked.dropped,
        language=main_language(languages),
        languages=languages,
        nbest=tuple(_nbest_of(item) for item in in_order if item.nbest),
        lattice=tuple(item.lattice for item in in_order if item.lattice is not None),
    )


def _nbest_of(item: DecodedChunk) -> ChunkNbest:
    place = item.span
    return ChunkNbest(
        start=place.start / SAMPLE_RATE,
        end=place.end / SAMPLE_RATE,
        channel=place.channel,
        hypotheses=item.nbest,
    )


def audio_facts(name: str, audio: AudioStream) -> AudioFacts:
    """What the recording turned out to be, once all of it was read."""
    length = audio.length
    return AudioFacts(
        name=name,
        format=audio.source_format,
        sample_rate=audio.source_rate,
        channels=audio.source_channels,
        duration=audio.samples_read / audio.sample_rate,
        complete=length.complete,
        expected_seconds=_milliseconds(length.expected_seconds),
        missing_seconds=_milliseconds(length.missing_seconds),
        warnings=tuple(audio.warnings),
    )


def language_model_facts(options: JobOptions, info: ModelInfo) -> ModelFacts | None:
    """The language model that had a say, if one was asked for."""
    name = options.language_model if options.graph is None else options.graph.name
    return ModelFacts(name=name, sha256=info.language_model) if name and info.language_model else None


def refuse_truncated(name: str, audio: AudioFacts | Length, asked: OnTruncated) -> None:
    """Raise AudioTruncated for a recording that was cut off, where the submitter wants none of it."""
    if asked == "fail" and audio.complete is False:
        length = Length(audio.complete, audio.expected_seconds, audio.missing_seconds)
        raise AudioTruncated(f"{name}: {describe_shortfall(length)}")


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def coverage_of(pieces: Sequence[ChunkSpan], samples: int) -> Coverage:
    """What of `samples` samples a channel lies in a core, averaged over the channels that the pieces name."""
    channels = sorted({piece.channel for piece in pieces}) or [0]
    covered = speech = 0
    gaps: list[Gap] = []
    for channel in channels:
        at = 0
        for piece in sorted((p for p in pieces if p.channel == channel), key=lambda p: p.core_start):
            if piece.core_start > at:
                gaps.append(_gap(at, piece.core_start, channel))
            fresh = max(0, piece.core_end - max(at, piece.core_start))
            covered += fresh
            speech += fresh if piece.speech else 0
            at = max(at, piece.core_end)
        if at < samples:
            gaps.append(_gap(at, samples, channel))
    expected_samples = samples * len(channels)
    return Coverage(
        audio_seconds=samples / SAMPLE_RATE,
        covered_seconds=covered / len(channels) / SAMPLE_RATE,
        speech_seconds=speech / len(channels) / SAMPLE_RATE,
        skipped_seconds=(covered - speech) / len(channels) / SAMPLE_RATE,
        ratio=min(1.0, covered / expected_samples) if expected_samples else 1.0,
        gaps=tuple(gaps),
    )


def _gap(start: int, end: int, channel: int) -> Gap:
    return Gap(start=start / SAMPLE_RATE, end=end / SAMPLE_RATE, channel=channel)
