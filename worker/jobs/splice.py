"""Puts newly decoded words into a stretch of an existing transcript. Pure.

Words belong to the stretch if their middle lies in it. The new words reach a little over both edges, so that
a word at an edge is known from both sides: the two are paired as at a cut between chunks
(`worker.segmentation.stitch`), and a pair is kept once, from the existing transcript if that has its middle
outside. So no word outside changes, with its correction, and none is lost or doubled at an edge.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeVar

from pydantic import BaseModel

from spool.domain.transcript import (
    NO_EVIDENCE,
    LanguageSpan,
    Segment,
    SpeechSpan,
    Transcript,
    Turn,
    Word,
    recount_speakers,
    text_of_words,
)
from worker.jobs.languages import main_language
from worker.segmentation.segments import segments_of
from worker.segmentation.stitch import clip_ends, middle_of, pair_words

REACH_SECONDS = 2.5
"""Around an edge, where words of both sides are paired."""
_TURN_SECONDS = 2.0
"""A word this far from the next turn has no speaker."""

Timed = TypeVar("Timed", bound=BaseModel)
Span = TypeVar("Span", SpeechSpan, LanguageSpan)


class _Placed(NamedTuple):
    """A word, and its index in the existing transcript, if it was there."""

    word: Word
    home: int | None


def splice(base: Transcript, fresh: Transcript, start: float, end: float) -> Transcript:
    """`base`, corrected, with the words of `fresh` from `start` to `end`, in seconds. `fresh` was heard in
    the stretch and a little around it, and has the name of the job."""
    channels = sorted({word.channel for word in (*base.words, *fresh.words)})
    placed = [each for channel in channels for each in _join(base, fresh, channel, start, end)]
    words = tuple(each.word for each in placed)
    segments = tuple(_segments(base.segments, placed))
    languages = _replaced(base.languages, fresh.languages, start, end)
    witness = base.witness and base.witness.model_copy(
        update={
            "words_without_evidence": sum(
                word.evidence is not None and word.evidence < NO_EVIDENCE for word in words
            )
        }
    )
    return base.model_copy(
        update={
            "job": fresh.job,
            "audio": base.audio.model_copy(update={"name": fresh.audio.name}),
            "model": fresh.model,
            "language_model": fresh.language_model,
            "options": fresh.options,
            "warnings": fresh.warnings,
            "text": text_of_words(words),
            "words": words,
            "segments": segments,
            "nbest": _by_time((*_around(base.nbest, start, end), *fresh.nbest)),
            "lattice": _by_time((*_around(base.lattice, start, end), *fresh.lattice)),
            "speech": _replaced(base.speech, fresh.speech, start, end) if fresh.speech else (),
            "dropped": _by_time(
                (
                    *(each for each in base.dropped if not start <= (each.start + each.end) / 2 < end),
                    *(each for each in fresh.dropped if start <= (each.start + each.end) / 2 < end),
                )
            ),
            "languages": languages,
            "language": main_language(languages) or base.language,
            "speakers": recount_speakers(base.speakers, words),
            "witness": witness,
            "corrections": (),
        }
    )


def move(transcript: Transcript, seconds: float) -> Transcript:
    """The transcript `seconds` later; negative: earlier."""
    return transcript.model_copy(
        update={
            "words": _move_all(transcript.words, seconds),
            "segments": _move_all(transcript.segments, seconds),
            "nbest": _move_all(transcript.nbest, seconds),
            "lattice": tuple(each.shift(seconds, each.channel) for each in transcript.lattice),
            "speech": _move_all(transcript.speech, seconds),
            "dropped": tuple(
                each.model_copy(update={"words": _move_all(each.words, seconds)})
                for each in _move_all(transcript.dropped, seconds)
            ),
            "languages": _move_all(transcript.languages, seconds),
        }
    )


def _move_all(timed: Iterable[Timed], seconds: float) -> tuple[Timed, ...]:
    return tuple(
        each.model_copy(update={name: round(getattr(each, name) + seconds, 3) for name in ("start", "end")})
        for each in timed
    )


def _join(base: Transcript, fresh: Transcript, channel: int, start: float, end: float) -> list[_Placed]:
    """The words of one channel, in order."""
    ours = [(at, word) for at, word in enumerate(base.words) if word.channel == channel]
    theirs = [word for word in fresh.words if word.channel == channel]

    def is_inside(word: Word) -> bool:
        return start <= middle_of(word) < end

    keep_ours = [not is_inside(word) for _, word in ours]
    keep_theirs = [is_inside(word) for word in theirs]
    for low, high in _edges(start, end):
        near_ours = [i for i, (_, word) in enumerate(ours) if low <= middle_of(word) <= high]
        near_theirs = [i for i, word in enumerate(theirs) if low <= middle_of(word) <= high]
        pairs = pair_words([ours[i][1] for i in near_ours], [theirs[i] for i in near_theirs])
        for a, b in pairs:
            keep_theirs[near_theirs[b]] = not keep_ours[near_ours[a]]
    kept = [_Placed(word, at) for (at, word), keep in zip(ours, keep_ours, strict=True) if keep]
    turns = _Turns(base.turns, channel)
    kept += [
        _Placed(turns.give_speaker(word), None)
        for word, keep in zip(theirs, keep_theirs, strict=True)
        if keep
    ]
    ordered = sorted(kept, key=lambda each: (each.word.start, each.word.end))
    clipped = clip_ends([each.word for each in ordered], channel)
    return [_Placed(word, each.home) for word, each in zip(clipped, ordered, strict=True)]


def _edges(start: float, end: float) -> list[tuple[float, float]]:
    """Where words of both sides are compared: around each edge, or over a short stretch as a whole."""
    if end - start <= 2 * REACH_SECONDS:
        return [(start - REACH_SECONDS, end + REACH_SECONDS)]
    return [(edge - REACH_SECONDS, edge + REACH_SECONDS) for edge in (start, end)]


class _Turns:
    """Who speaks in one channel."""

    def __init__(self, turns: Iterable[Turn], channel: int) -> None:
        self._turns = [turn for turn in turns if turn.channel == channel]
        self._starts = [turn.start for turn in self._turns]
        self._reach = list(accumulate((turn.end for turn in self._turns), max))

    def give_speaker(self, word: Word) -> Word:
        """The word said by whoever had the turn, or has the nearest one."""
        near = list(self._near(word))
        if not near:
            return word
        nearest = min(near, key=lambda turn: max(turn.start - word.end, word.start - turn.end))
        speaking = {turn.speaker for turn in near if turn.start <= middle_of(word) <= turn.end}
        return word.model_copy(update={"speaker": nearest.speaker, "overlap": len(speaking) > 1})

    def _near(self, word: Word) -> Iterator[Turn]:
        at = bisect_right(self._starts, word.end + _TURN_SECONDS) - 1
        while at >= 0 and self._reach[at] >= word.start - _TURN_SECONDS:
            if self._turns[at].end >= word.start - _TURN_SECONDS:
                yield self._turns[at]
            at -= 1


def _segments(before: Sequence[Segment], placed: Sequence[_Placed]) -> list[Segment]:
    """The segments whose words are all still there, and new ones of the others."""
    places = {each.home: at for at, each in enumerate(placed) if each.home is not None}
    segments: list[Segment] = []
    settled: set[int] = set()
    for segment in before:
        own = [places.get(home) for home in range(segment.first_word, segment.last_word + 1)]
        first = own[0]
        if first is None or own != list(range(first, first + len(own))):
            continue
        settled.update(range(first, first + len(own)))
        segments.append(segment.model_copy(update={"first_word": first, "last_word": first + len(own) - 1}))
    for first, last in _runs([at for at in range(len(placed)) if at not in settled]):
        segments += [
            segment.model_copy(
                update={"first_word": segment.first_word + first, "last_word": segment.last_word + first}
            )
            for segment in segments_of([each.word for each in placed[first : last + 1]])
        ]
    return sorted(segments, key=lambda segment: (segment.start, segment.channel))


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of consecutive places."""
    for at, place in enumerate(places):
        if at == 0 or places[at - 1] != place - 1:
            first = place
        if at + 1 == len(places) or places[at + 1] != place + 1:
            yield first, place


def _around(timed: Iterable[Timed], start: float, end: float) -> list[Timed]:
    """What does not lie in the stretch altogether."""
    return [each for each in timed if not start <= each.start <= each.end <= end]  # type: ignore[attr-defined]


def _by_time(timed: Iterable[Timed]) -> tuple[Timed, ...]:
    return tuple(sorted(timed, key=lambda each: (each.start, each.channel)))  # type: ignore[attr-defined]


def _replaced(before: Sequence[Span], after: Sequence[Span], start: float, end: float) -> tuple[Span, ...]:
    """The spans outside the stretch and the new ones in it, cut at its edges."""
    if not before:
        return ()
    cut = [(each, each.start, min(each.end, start)) for each in before]
    cut += [(each, max(each.start, end), each.end) for each in before]
    cut += [(each, max(each.start, start), min(each.end, end)) for each in after]
    spans = [each.model_copy(update={"start": a, "end": b}) for each, a, b in cut if a < b]
    return tuple(sorted(spans, key=lambda each: (each.channel, each.start)))
