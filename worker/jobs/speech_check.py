"""What the speech detector says of a recording's words: which are doubtful, which segments were invented and
are dropped, and how much of the speech has words.

Owns what becomes of the words; the rules and their thresholds are those of `worker.speech.guard`. Knows
numbers and words; knows no engine and no store.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spool.domain.transcript import (
    DroppedSegment,
    Segment,
    SpeechSpan,
    Transcript,
    Word,
    recount_speakers,
    text_of_words,
)
from worker.audio import SAMPLE_RATE
from worker.segmentation.segments import segments_of
from worker.speech.guard import DROP_MARGIN, MARGIN, doubtful_words, find_invented, measure_coverage
from worker.speech.listener import SpeechListener
from worker.speech.spans import label_spans, speech_stretches

_SHARE_DIGITS = 4


@dataclass(frozen=True, slots=True)
class CheckedWords:
    """What is left of the words, their segments, and what the detector heard; `coverage` is None where it
    heard no speech."""

    words: tuple[Word, ...]
    segments: tuple[Segment, ...]
    dropped: tuple[DroppedSegment, ...] = ()
    spans: tuple[SpeechSpan, ...] = ()
    coverage: float | None = None


def check_words(words: Sequence[Word], listeners: Sequence[SpeechListener]) -> CheckedWords:
    """The words by what `listeners` (one for each channel, by its number) heard; as they are without any."""
    segments = segments_of(words)
    if not listeners:
        return CheckedWords(tuple(words), tuple(segments))
    unheard, alone = (_unheard(words, listeners, margin) for margin in (MARGIN, DROP_MARGIN))
    marked = [
        word.model_copy(update={"doubtful": True}) if doubtful else word
        for word, doubtful in zip(words, unheard, strict=True)
    ]
    ranges = [range(segment.first_word, segment.last_word + 1) for segment in segments]
    invented = find_invented(alone, ranges)
    left, kept, dropped = drop_segments(marked, segments, invented)
    return CheckedWords(
        words=left,
        segments=kept,
        dropped=dropped,
        spans=_spans(listeners),
        coverage=_coverage(left, listeners),
    )


def drop_segments(
    words: Sequence[Word], segments: Sequence[Segment], gone: Sequence[bool]
) -> tuple[tuple[Word, ...], tuple[Segment, ...], tuple[DroppedSegment, ...]]:
    """The words and segments without those that are `gone`, and these."""
    dropped = [segment for segment, is_gone in zip(segments, gone, strict=True) if is_gone]
    kept = [segment for segment, is_gone in zip(segments, gone, strict=True) if not is_gone]
    left, moved = _without(words, dropped)
    return (
        left,
        tuple(_renumber(segment, moved) for segment in kept),
        tuple(_drop_segment(segment, words) for segment in dropped),
    )


def drop_flagged(transcript: Transcript) -> Transcript:
    """The record without the segments that the sound does not support, which are among the dropped ones."""
    gone = [segment.flagged for segment in transcript.segments]
    words, segments, dropped = drop_segments(transcript.words, transcript.segments, gone)
    every = sorted((*transcript.dropped, *dropped), key=lambda each: (each.start, each.channel))
    left = {
        "words": words,
        "segments": segments,
        "text": text_of_words(words),
        "speakers": recount_speakers(transcript.speakers, words),
    }
    return transcript.model_copy(update={**left, "dropped": tuple(every)})


def find_invented_lists(lists: Sequence[Sequence[Word]], checked: CheckedWords) -> list[bool]:
    """For each list, one chunk's words, whether some of them were dropped and none is left."""

    def places(words: Iterable[Word]) -> set[tuple[int, float, float, str]]:
        return {(word.channel, word.start, word.end, word.text) for word in words}

    gone = places(word for segment in checked.dropped for word in segment.words)
    left = places(checked.words)
    own = map(places, lists)
    return [not each.isdisjoint(gone) and each.isdisjoint(left) for each in own]


def _unheard(words: Sequence[Word], listeners: Sequence[SpeechListener], margin: float) -> list[bool]:
    """For each word whether nobody is heard on its channel within `margin` seconds of it."""
    verdicts = [False] * len(words)
    for channel, listener in enumerate(listeners):
        own = [index for index, word in enumerate(words) if word.channel == channel]
        doubts = doubtful_words([words[index] for index in own], listener.probabilities, margin=margin)
        for index, doubtful in zip(own, doubts, strict=True):
            verdicts[index] = doubtful
    return verdicts


def _without(words: Sequence[Word], dropped: Sequence[Segment]) -> tuple[tuple[Word, ...], list[int]]:
    """The words of no dropped segment, and for each of `words` how many are left before it."""
    gone = {index for segment in dropped for index in range(segment.first_word, segment.last_word + 1)}
    left: list[Word] = []
    before = []
    for index, word in enumerate(words):
        before.append(len(left))
        if index not in gone:
            left.append(word)
    return tuple(left), before


def _renumber(segment: Segment, moved: Sequence[int]) -> Segment:
    places = {"first_word": moved[segment.first_word], "last_word": moved[segment.last_word]}
    return segment.model_copy(update=places)


def _drop_segment(segment: Segment, words: Sequence[Word]) -> DroppedSegment:
    return DroppedSegment(
        start=segment.start,
        end=segment.end,
        text=segment.text,
        channel=segment.channel,
        flagged=segment.flagged,
        words=tuple(words[segment.first_word : segment.last_word + 1]),
    )


def _spans(listeners: Sequence[SpeechListener]) -> tuple[SpeechSpan, ...]:
    return tuple(
        SpeechSpan(
            start=round(span.start, 3),
            end=round(span.end, 3),
            label=span.label.value,
            channel=channel,
            silent=span.silent,
        )
        for channel, listener in enumerate(listeners)
        for span in label_spans(listener.probabilities, listener.samples, levels=listener.levels)
    )


def _coverage(words: Sequence[Word], listeners: Sequence[SpeechListener]) -> float | None:
    """The share of all channels' detected speech that lies near a word of its channel."""
    covered = total = 0.0
    for channel, listener in enumerate(listeners):
        stretches = speech_stretches(listener.probabilities, listener.samples)
        total += sum(last - first for first, last in stretches) / SAMPLE_RATE
        covered += measure_coverage([word for word in words if word.channel == channel], stretches)
    return round(min(1.0, covered / total), _SHARE_DIGITS) if total else None
