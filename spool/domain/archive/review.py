"""The passages of a transcript as people review them, each with how doubtful its words are.

Pure. A passage here is a stretch of up to 40 words of one channel as they were recognised: edits and speakers
change neither its words nor its number, so that a mark on it stays in place.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from math import prod
from typing import Annotated, Literal, get_args

from spool.domain.archive.passages import MOST_WORDS, PAUSE_SECONDS, Spoken
from spool.domain.columns import Unprefixed
from spool.domain.spacing import join_words
from spool.domain.transcript import NO_EVIDENCE, LanguageSpan, SpeechSpan, Transcript, Word
from spool.wer import normal_words

Reason = Literal["confidence", "versions", "speech", "evidence", "language"]
REASONS = get_args(Reason)
NEAR_SECONDS = 0.5
"""A word of another version is the same if it is spoken within this time."""
SHORTEST_SPEECH, LONGEST_SPEECH = 2.0, 10.0
"""Speech without words, in seconds: less makes no passage, and more is no more doubtful."""
CHANGED = 0.25
"""The least doubt where the language changes."""
WORTH_REVIEW = 0.3
"""The least doubt that makes a passage count as wanting review."""


@dataclass(frozen=True, slots=True)
class Doubts:
    """Why a passage is doubtful, each from 0 to 1.

    confidence: one minus the mean of its words' confidence: the share of words that the model expects to be
    wrong. versions: the share of words that differ in the previous version. speech: the share of words where
    the speech detector found no speech, or for speech without words its length over ten seconds. evidence:
    the share of words that the witness found no evidence for. language: the probability that the model leaves
    to other languages where the language changes.
    """

    confidence: float = 0.0
    versions: float = 0.0
    speech: float = 0.0
    evidence: float = 0.0
    language: float = 0.0

    @property
    def total(self) -> float:
        """All of them, combined as if each were an independent chance that something is wrong."""
        doubts = (self.confidence, self.versions, self.speech, self.evidence, self.language)
        return round(1 - prod(1 - each for each in doubts), 4)


@dataclass(frozen=True, slots=True)
class ReviewPassage:
    """Words `first_word` to `last_word` of the record, with their times. Speech without words has no text;
    its `first_word` is the word after it and `last_word` the one before."""

    number: int
    channel: int
    start_seconds: float
    end_seconds: float
    first_word: int
    last_word: int
    text: str
    doubts: Annotated[Doubts, Unprefixed()]

    @property
    def words(self) -> int:
        """The number of recognised words."""
        return self.last_word - self.first_word + 1


def review_passages(transcript: Transcript, other: Sequence[Spoken] = ()) -> list[ReviewPassage]:
    """The passages of a transcript as it was recognised, by start; `other`: another version's words."""
    begin = 0
    stretches: list[tuple[int, float, float, int, int]] = []
    for channel, group in groupby(transcript.words, key=lambda word: word.channel):
        words = list(group)
        for first, last in _cuts(words):
            end = max(word.end for word in words[first:last])
            stretches.append((channel, words[first].start, end, begin + first, begin + last - 1))
        begin += len(words)
    stretches += _silent(transcript)
    stretches.sort(key=lambda stretch: (stretch[1], stretch[0], stretch[3]))
    changed = _changes(transcript.languages)
    known = _Version(other) if other else None
    unsupported = _list_unsupported(transcript)
    passages = []
    for number, stretch in enumerate(stretches):
        own = transcript.words[stretch[3] : stretch[4] + 1]
        doubts = _doubts(stretch[:3], own, changed, known)
        if own and unsupported:
            share = sum(at in unsupported for at in range(stretch[3], stretch[4] + 1)) / len(own)
            doubts = replace(doubts, evidence=round(share, 4))
        passages.append(ReviewPassage(number, *stretch, text=_text(own), doubts=doubts))
    return passages


def _list_unsupported(transcript: Transcript) -> set[int]:
    """The words that the witness found no evidence for, those of flagged segments included."""
    alone = {
        at
        for at, word in enumerate(transcript.words)
        if word.evidence is not None and word.evidence < NO_EVIDENCE
    }
    flagged = (each for each in transcript.segments if each.flagged)
    return alone.union(*(range(each.first_word, each.last_word + 1) for each in flagged))


class _Version:
    """When another version has which word, in whatever channel, since it may separate channels
    differently."""

    def __init__(self, words: Iterable[Spoken]) -> None:
        self._times: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for word in words:
            for text in normal_words(word.text):
                self._times[text].append((word.start, word.end))

    def has(self, word: Word) -> bool:
        """Whether all of the word is there at its time."""
        return all(
            any(
                start - NEAR_SECONDS <= word.end and word.start <= end + NEAR_SECONDS
                for start, end in self._times.get(text, ())
            )
            for text in normal_words(word.text)
        )


def _doubts(
    where: tuple[int, float, float],
    words: Sequence[Word],
    changed: Sequence[tuple[LanguageSpan, float]],
    other: _Version | None,
) -> Doubts:
    channel, start, end = where
    language = max(
        (
            doubt
            for span, doubt in changed
            if span.channel == channel and span.start < end and start < span.end
        ),
        default=0.0,
    )
    if not words:
        return Doubts(speech=round(min(1.0, (end - start) / LONGEST_SPEECH), 4), language=language)
    return Doubts(
        confidence=round(sum(1 - word.confidence for word in words) / len(words), 4),
        versions=0.0 if other is None else round(sum(not other.has(word) for word in words) / len(words), 4),
        speech=round(sum(word.doubtful for word in words) / len(words), 4),
        language=language,
    )


def _changes(spans: Sequence[LanguageSpan]) -> list[tuple[LanguageSpan, float]]:
    """The spans whose language differs from that of the span before, or from the language they were decoded
    in."""
    changes = []
    for _, group in groupby(spans, key=lambda span: span.channel):
        own = list(group)
        for before, span in pairwise([own[0], *own]):
            if span.read_as is not None:
                changes.append((span, 1.0))
            elif span.language != before.language:
                sure = 0.5 if span.probability is None else span.probability
                changes.append((span, round(max(CHANGED, 1 - sure), 4)))
    return changes


def _silent(transcript: Transcript) -> Iterator[tuple[int, float, float, int, int]]:
    """Detected speech that no word is near."""
    words: dict[int, list[tuple[int, Word]]] = defaultdict(list)
    for at, word in enumerate(transcript.words):
        words[word.channel].append((at, word))
    for channel, group in groupby(transcript.speech, key=lambda span: span.channel):
        own = sorted(words[channel], key=lambda pair: pair[1].start)
        past = 0
        reached = 0.0
        after = own[0][0] if own else len(transcript.words)
        for span in _speech(group):
            start = max(span.start, reached)
            while past < len(own) and own[past][1].start - NEAR_SECONDS < span.end:
                at, word = own[past]
                if word.start - NEAR_SECONDS - start >= SHORTEST_SPEECH:
                    yield channel, round(start, 3), round(word.start - NEAR_SECONDS, 3), at, at - 1
                reached = max(reached, word.end + NEAR_SECONDS)
                start = max(start, reached)
                after = at + 1
                past += 1
            if span.end - start >= SHORTEST_SPEECH:
                yield channel, round(start, 3), span.end, after, after - 1


def _speech(spans: Iterable[SpeechSpan]) -> Iterator[SpeechSpan]:
    return (span for span in spans if span.label == "speech")


def _text(words: Sequence[Word]) -> str:
    return join_words(word.text for word in words)


def _cuts(words: Sequence[Word]) -> Iterator[tuple[int, int]]:
    """The first word of each passage, and the one after its last, cut as for the search but across
    speakers."""
    first = 0
    for at in range(1, len(words) + 1):
        paused = at < len(words) and words[at].start - words[at - 1].end >= PAUSE_SECONDS
        if at == len(words) or at - first >= MOST_WORDS or (paused and at - first >= MOST_WORDS // 2):
            yield first, at
            first = at
