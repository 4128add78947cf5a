"""From the chunks of one recording to its transcript: stitched words, segments, and what was covered (law 6).

Knows numbers and words; calls no engine and no store.
"""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import JsonValue

from spool.domain.options import JobOptions, OnTruncated
from spool.domain.recognition import ChunkSpan, DecodedChunk, Recognition
from spool.domain.spacing import join_words
from spool.domain.transcript import AudioFacts, ChunkNbest, Coverage, Gap, ModelFacts, Transcript, Word
from spool.errors import AudioTruncated, SpoolError
from worker.audio import SAMPLE_RATE, AudioStream
from worker.audio.stated_length import Length, describe_shortfall
from worker.jobs.languages import language_spans, main_language
from worker.jobs.speech_check import check_words, find_invented_lists
from worker.models.base import ModelInfo
from worker.segmentation.stitch import stitch
from worker.speech.listener import SpeechListener


def place_chunk(span: ChunkSpan, heard: Recognition) -> DecodedChunk:
    """The chunk with what was heard in it, in seconds of the recording."""
    offset = span.start / SAMPLE_RATE
    words = move_words(heard.words, offset, span.end / SAMPLE_RATE, span.channel)
    return DecodedChunk(
        span,
        replace(
            heard,
            hypotheses=(),
            words=words,
            lattice=heard.lattice and heard.lattice.shift(offset, span.channel),
            language=heard.language if words else None,
            output=None,
        ),
    )


def move_words(words: Sequence[Word], seconds: float, end: float, channel: int = 0) -> tuple[Word, ...]:
    """The words `seconds` later, to the millisecond and no later than `end`: a model's last frame may reach a
    little beyond the audio."""

    def later(time: float) -> float:
        return min(round(time + seconds, 3), end)

    return tuple(
        word.model_copy(update={"start": later(word.start), "end": later(word.end), "channel": channel})
        for word in words
    )


def transcript_of(
    job_id: str | None,
    chunks: Sequence[DecodedChunk],
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
    coverage = coverage_of([each.span for each in chunks], samples)
    if coverage.ratio != 1 or coverage.gaps:
        raise SpoolError(f"{audio.name}: the chunks do not cover the recording: {coverage.gaps[:3]}.")
    checked = check_words(stitch(chunks), listeners)
    languages = language_spans(
        [(each.span, each.heard.language) for each in chunks if each.heard.language is not None]
    )
    invented = find_invented_lists([each.heard.words for each in chunks], checked)
    believed = [each for each, gone in zip(chunks, invented, strict=True) if not gone]
    in_order = sorted(believed, key=lambda each: (each.span.start, each.span.channel))
    return Transcript(
        job=job_id,
        audio=audio,
        model=model,
        language_model=language_model,
        options=options,
        warnings=warnings,
        coverage=coverage.model_copy(update={"speech": checked.coverage}),
        text=join_words(word.text for word in checked.words),
        words=checked.words,
        segments=checked.segments,
        speech=checked.spans,
        dropped=checked.dropped,
        language=main_language(languages),
        languages=languages,
        nbest=tuple(_nbest_of(each) for each in in_order if each.heard.nbest),
        lattice=tuple(each.heard.lattice for each in in_order if each.heard.lattice is not None),
    )


def _nbest_of(chunk: DecodedChunk) -> ChunkNbest:
    span = chunk.span
    return ChunkNbest(
        start=span.start / SAMPLE_RATE,
        end=span.end / SAMPLE_RATE,
        channel=span.channel,
        hypotheses=chunk.heard.nbest,
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
