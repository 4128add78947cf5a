"""What the sounds say of a transcript: is there evidence for each segment and word, and is there speech
without words?

A segment is aligned with what was heard around its time, and so are decoys: made-up lines of as many phones,
which share whatever chance and a generous window give. How far it stands out from them, and how well it fits,
decide (`_SEGMENT`). A segment without evidence is looked for once more further around, since recognisers'
times may be off, and two that claim the same sounds do not both get them. Words are scored within their
segment's alignment. Thresholds and weights: `python -m ops.accuracy.witness`, docs/witness.md. Plain numpy.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spool.domain.transcript import NO_EVIDENCE
from spool.sounds.alignment import Aligned, Line, align_lines, mean_certainty, score_lines
from spool.sounds.lexicon import Lexicon, Pronunciation
from spool.sounds.phones import FRAME_SECONDS, PhoneFrames
from worker.witness.decoys import DECOYS, make_decoys
from worker.witness.transcripts import GivenSegment, GivenTranscript, GivenWord

NEAR_SECONDS, FAR_SECONDS = 0.8, 2.5
"""How far beyond its times a segment is looked for, and how far if it was not found."""
EDGE_FRAMES = 5
LINES_AT_ONCE = 16
LONGEST_SECONDS = 40.0
"""A longer segment is cut at its words' times; without these it is not checked."""
PIECE_SECONDS, PAUSE_SECONDS = 12.0, 0.7
"""How long the parts of a long segment may be, and the pause between words that parts them."""
LEAST_PHONES = 4
"""Fewer are found anywhere: such a segment is not judged."""
LEAST_CERTAIN = 0.6
"""Of `mean_certainty` over a recording: below, the model itself does not know what it hears."""
ENGLISH_SHARE, ENGLISH_WORDS = 0.6, 8
"""A text of so many words of which fewer are in the dictionary is not taken for English."""
CLAIM_SHARE = 0.5
"""Of a segment's frames that another one takes as well, from which one of them has to go."""
LEAST_SOUNDS = 6
LEAST_RATE = 1.5
"""Sounds, and sounds a second, of clear speech."""
WORD_EDGE = 0.25
"""Seconds around a word that are taken to be its own."""
LONGEST_PAUSE = 1.7
"""Seconds without a sound that end a stretch of speech: slow readers pause after every word."""


NOWHERE = Aligned(0.0, ())


class Weights(NamedTuple):
    """Of a logistic regression: the constant and what each feature counts, largest and smallest value of
    each."""

    constant: float
    weights: tuple[float, ...]

    def log_odds(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """[N, features] -> [N]."""
        odds: NDArray[np.float64] = features @ np.array(self.weights) + self.constant
        return odds


SEGMENT = Weights(-1.462, (1.171, 1.335, 0.958))
"""Log odds that a segment was said: of what `segment_features` measures."""
SEGMENT_LIMIT = -0.25
"""Half a percent of what non-native speakers of the tuning part said is below it."""
WORD = Weights(4.0, (1.2,))


@dataclass(frozen=True, slots=True)
class CheckedWord:
    """A word with its evidence, 0 to 1; None if the model cannot tell."""

    text: str
    start: float
    end: float
    evidence: float | None


@dataclass(frozen=True, slots=True)
class CheckedSegment:
    """A segment as it was given. flagged: the sound does not support it. evidence: 0 to 1, None if it was not
    judged, for which `reason` says why."""

    given: GivenSegment
    flagged: bool
    evidence: float | None
    words: tuple[CheckedWord, ...]
    reason: str = ""
    frames: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SpeechSpan:
    """Clear speech that no word covers."""

    start: float
    end: float
    channel: int = 0


@dataclass(frozen=True, slots=True)
class Findings:
    """Of one recording. abstained: why nothing was judged; empty if it was."""

    segments: tuple[CheckedSegment, ...]
    speech_without_words: tuple[SpeechSpan, ...]
    abstained: str = ""

    @property
    def words_without_evidence(self) -> int:
        """How many words the sound does not support, those of flagged segments included."""
        return sum(
            len(each.words) if each.flagged else sum(is_unsupported(word) for word in each.words)
            for each in self.segments
        )


def is_unsupported(word: CheckedWord) -> bool:
    """Whether a word within a supported segment has no evidence."""
    return word.evidence is not None and word.evidence < NO_EVIDENCE


def check_transcript(
    given: GivenTranscript,
    channels: Sequence[PhoneFrames],
    lexicon: Lexicon,
    check: Callable[[], None] = lambda: None,
) -> Findings:
    """Judges every segment. channels: what is heard in each channel that a segment names. `check` is called
    now and then and may raise to stop."""
    reason = _reason_to_abstain(given, channels, lexicon)
    if reason:
        kept = tuple(_abstain_from(each, reason) for each in given.segments)
        return Findings(kept, (), reason)
    found: list[CheckedSegment] = [_abstain_from(each, "") for each in given.segments]
    for channel, frames in enumerate(channels):
        own = [at for at, each in enumerate(given.segments) if each.channel == channel]
        judged = _Channel(frames, lexicon, check).judge([given.segments[at] for at in own])
        for at, each in zip(own, judged, strict=True):
            found[at] = each
    speech = [
        span
        for channel, frames in enumerate(channels)
        for span in find_speech(frames, [each for each in found if each.given.channel == channel], channel)
    ]
    return Findings(tuple(found), tuple(speech))


def _reason_to_abstain(given: GivenTranscript, channels: Sequence[PhoneFrames], lexicon: Lexicon) -> str:
    if given.language is not None and given.language.lower().partition("-")[0] not in ("en", "english"):
        return f"the transcript's language is {given.language}; the witness knows English alone"
    tokens = [word.text for each in given.segments for word in each.words]
    spoken = [token for token in dict.fromkeys(tokens) if lexicon.parts(token)]
    if len(spoken) >= ENGLISH_WORDS:
        share = sum(map(lexicon.knows, spoken)) / len(spoken)
        if share < ENGLISH_SHARE:
            return f"only {share:.0%} of the words are in the English dictionary"
    certainty = [mean_certainty(frames, 0, len(frames.table)) for frames in channels]
    if certainty and min(certainty) < LEAST_CERTAIN:
        return f"the model is unsure of the sounds (mean probability {min(certainty):.2f})"
    return ""


def _abstain_from(given: GivenSegment, reason: str) -> CheckedSegment:
    words = tuple(CheckedWord(each.text, *_times(each, given), None) for each in given.words)
    return CheckedSegment(given, flagged=False, evidence=None, words=words, reason=reason)


def _times(word: GivenWord, segment: GivenSegment) -> tuple[float, float]:
    if word.start is None or word.end is None:
        return segment.start, segment.end
    return word.start, word.end


@dataclass(slots=True)
class _Piece:
    """A segment, or a part of a long one, in one channel."""

    segment: int
    start: float
    end: float
    words: tuple[Pronunciation, ...]
    odds: float = -math.inf
    aligned: Aligned = NOWHERE
    is_cut: bool = False
    """Its words reach to the end of where it was looked for."""

    @property
    def phones(self) -> int:
        return sum(map(len, self.words))

    @property
    def span(self) -> tuple[int, int]:
        """The frames of its words."""
        placed = [word for word in self.aligned.words if word.last > word.first]
        return (placed[0].first, placed[-1].last) if placed else (0, 0)


@dataclass
class _Channel:
    """Judges the segments of one channel."""

    frames: PhoneFrames
    lexicon: Lexicon
    check: Callable[[], None]
    pieces: list[_Piece] = field(default_factory=list)

    def judge(self, segments: Sequence[GivenSegment]) -> list[CheckedSegment]:
        for number, segment in enumerate(segments):
            self.pieces += self._cut(number, segment)
        self._look(self.pieces, NEAR_SECONDS)
        self._look([each for each in self.pieces if each.odds < SEGMENT_LIMIT or each.is_cut], FAR_SECONDS)
        self._settle_claims()
        by_segment: list[list[_Piece]] = [[] for _ in segments]
        for piece in self.pieces:
            by_segment[piece.segment].append(piece)
        return [self._verdict(segment, own) for segment, own in zip(segments, by_segment, strict=True)]

    def _cut(self, number: int, segment: GivenSegment) -> list[_Piece]:
        """The segment as one piece, a long one as several; none where it cannot be checked."""
        if segment.start >= self.frames.seconds:
            return []
        words = [self._pronounce(word) for word in segment.words]
        if segment.end - segment.start <= LONGEST_SECONDS:
            return [_Piece(number, segment.start, segment.end, tuple(words))]
        if any(each.start is None for each in segment.words):
            return []
        pieces: list[_Piece] = []
        for word, way in zip(segment.words, words, strict=True):
            start, end = _times(word, segment)
            if not pieces or end - pieces[-1].start > PIECE_SECONDS or start - pieces[-1].end > PAUSE_SECONDS:
                pieces.append(_Piece(number, start, end, ()))
            last = pieces[-1]
            last.end, last.words = max(last.end, end), (*last.words, way)
        return pieces

    def _pronounce(self, word: GivenWord) -> Pronunciation:
        ways = self.lexicon.pronounce(word.text)
        return ways[0] if ways else ()

    def _look(self, pieces: Sequence[_Piece], margin: float) -> None:
        """Aligns pieces with what was heard up to `margin` seconds beyond their times."""
        judged = [each for each in pieces if each.phones >= LEAST_PHONES]
        for first in range(0, len(judged), LINES_AT_ONCE):
            self.check()
            some = judged[first : first + LINES_AT_ONCE]
            lines = [self._line(each, margin) for each in some]
            odds = SEGMENT.log_odds(segment_features(self.frames, lines))
            found = zip(some, lines, align_lines(self.frames, lines), odds.tolist(), strict=True)
            for piece, line, aligned, own in found:
                if own > piece.odds or (own >= SEGMENT_LIMIT and aligned.score > piece.aligned.score):
                    piece.odds, piece.aligned = own, aligned
                first, last = piece.span
                piece.is_cut = first - line.first < EDGE_FRAMES or line.last - last < EDGE_FRAMES

    def _line(self, piece: _Piece, margin: float) -> Line:
        first = self.frames.frame(piece.start - margin)
        last = max(self.frames.frame(piece.end + margin), min(first + 1, len(self.frames.table)))
        return Line(first, last, piece.words)

    def _settle_claims(self) -> None:
        """Of two pieces that take the same frames, the one further from its own times has to do without."""
        found = [each for each in self.pieces if each.odds >= SEGMENT_LIMIT]
        for before, after in itertools.pairwise(sorted(found, key=lambda each: each.span)):
            shared = min(before.span[1], after.span[1]) - after.span[0]
            shortest = min(each.span[1] - each.span[0] for each in (before, after))
            if shared > CLAIM_SHARE * shortest:
                loser = max((before, after), key=_distance)
                loser.odds = SEGMENT_LIMIT - 10.0

    def _verdict(self, segment: GivenSegment, pieces: Sequence[_Piece]) -> CheckedSegment:
        judged = [each for each in pieces if each.phones >= LEAST_PHONES]
        if not judged:
            return _abstain_from(segment, self._why_unjudged(segment))
        weakest = min(judged, key=lambda each: each.odds)
        flagged = weakest.odds < SEGMENT_LIMIT
        return CheckedSegment(
            segment,
            flagged=flagged,
            evidence=round(_share(weakest.odds), 3),
            words=tuple(self._words(segment, pieces, flagged=flagged)),
            frames=tuple(frames for each in judged for frames in self._list_covered(each)),
        )

    def _list_covered(self, piece: _Piece) -> Iterable[tuple[int, int]]:
        """The frames of its words; all of them and its times if a word's sounds are unknown."""
        if all(piece.words):
            return ((word.first, word.last) for word in piece.aligned.words)
        return (piece.span, (self.frames.frame(piece.start), self.frames.frame(piece.end)))

    def _why_unjudged(self, segment: GivenSegment) -> str:
        if segment.start >= self.frames.seconds:
            return "it begins behind the recording's end"
        if not any(self._pronounce(word) for word in segment.words):
            return "no word whose sounds are known"
        if segment.end - segment.start > LONGEST_SECONDS:
            return f"longer than {LONGEST_SECONDS:g} s and without times of its words"
        return "too short to be told from chance"

    def _words(
        self, segment: GivenSegment, pieces: Sequence[_Piece], *, flagged: bool
    ) -> Iterable[CheckedWord]:
        places = [
            (way, placed)
            for piece in pieces
            for way, placed in zip(
                piece.words, piece.aligned.words or (None,) * len(piece.words), strict=True
            )
        ]
        for word, (way, placed) in zip(segment.words, places, strict=True):
            start, end = _times(word, segment)
            if placed is None or not way:
                yield CheckedWord(word.text, start, end, None)
                continue
            if word.start is None and placed.last > placed.first:
                start, end = round(placed.first * FRAME_SECONDS, 3), round(placed.last * FRAME_SECONDS, 3)
            evidence = _share(float(WORD.log_odds(np.array([[placed.score / len(way)]]))[0]))
            yield CheckedWord(
                word.text, start, end, round(min(evidence, NO_EVIDENCE / 2) if flagged else evidence, 3)
            )


def _distance(piece: _Piece) -> float:
    """Seconds from the middle of its times to that of its frames."""
    first, last = piece.span
    return abs((piece.start + piece.end) / 2 - (first + last) / 2 * FRAME_SECONDS)


def _share(odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(min(odds, 30.0), -30.0)))


def segment_features(frames: PhoneFrames, lines: Sequence[Line]) -> NDArray[np.float64]:
    """[N, 2]: the score a phone, and how many standard deviations it is above the decoys'. Both are kept
    within what the weights were fitted on."""
    phones = np.array([max(line.phones, 1) for line in lines], np.float64)
    decoys = [decoy for line in lines for decoy in make_decoys(line)]
    scores = score_lines(frames, [*lines, *decoys])
    own = scores[: len(lines)] / phones
    others = scores[len(lines) :].reshape(len(lines), DECOYS) / phones[:, None]
    above = (own - others.mean(axis=1)) / (others.std(axis=1) + 0.2)
    return np.stack([np.maximum(own, -8.0), np.clip(above, -2.0, 8.0), np.log(phones)], axis=1)


def find_speech(
    frames: PhoneFrames, segments: Sequence[CheckedSegment], channel: int = 0
) -> list[SpeechSpan]:
    """Stretches of clear speech over which no word stands. A segment that the sounds do not support covers
    nothing; one that was not judged covers its times."""
    covered = np.zeros(len(frames.table), np.bool_)
    edge = round(WORD_EDGE / FRAME_SECONDS)
    for each in segments:
        if each.flagged:
            continue
        given = frames.frame(each.given.start), frames.frame(each.given.end)
        for first, last in each.frames if each.evidence is not None else (given,):
            covered[max(0, first - edge) : last + edge] = True
    begins = np.flatnonzero((np.diff(frames.heard) > 0) & ~covered)
    return [
        SpeechSpan(
            round(first * FRAME_SECONDS, 2), round(min(last * FRAME_SECONDS, frames.seconds), 2), channel
        )
        for first, last in _stretches(begins, covered)
    ]


def _stretches(begins: NDArray[np.int64], covered: NDArray[np.bool_]) -> Iterable[tuple[int, int]]:
    """Runs of sounds, [first, last) in frames, that are long and quick enough for speech."""
    if not len(begins):
        return
    longest = LONGEST_PAUSE / FRAME_SECONDS
    passed = np.append(0, np.cumsum(covered))
    apart = (np.diff(begins) > longest) | (passed[begins[1:]] > passed[begins[:-1]])
    for run in np.split(begins, np.flatnonzero(apart) + 1):
        last = int(run[-1]) + 5  # a sound lasts some 0.1 s
        if len(run) >= LEAST_SOUNDS and len(run) >= LEAST_RATE * (last - run[0]) * FRAME_SECONDS:
            yield int(run[0]), last
