"""Which speaker said each word, from words with times and a diarizer's segments.

Pure functions; know no engine and no job.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from worker.diarization.base import SpeakerActivity, SpeakerSegment
from worker.speech.guard import HasTimes

_UNSURE = 0.6
_SHORT = 0.3
_FLOOR = 0.01
"""Mean probability below which speakers are not told apart."""


@dataclass(frozen=True, slots=True)
class WordSpeaker:
    """The speaker of one word.

    `sureness` is the speaker's share of the time of the word that has a speaker (0 if none has), or of the
    sum of all speakers' mean probabilities. `raw` is the speaker before isolated words were taken over by
    their neighbours. `overlapped` says that another speaker's segments cover half of the word too, or that
    another's mean probability is above a half.
    """

    speaker: int
    sureness: float
    raw: int
    overlapped: bool = False


def label_words(
    words: Sequence[HasTimes],
    segments: Sequence[SpeakerSegment],
    activity: SpeakerActivity | None = None,
) -> tuple[list[WordSpeaker | None], list[SpeakerSegment]]:
    """A speaker for each word (both in order of their starts), numbered by arrival in the words, and the
    segments renumbered likewise; speakers without a word come last.

    The speaker with the largest mean of `activity` over the word; where there is none, or it hears nobody,
    the one with most overlap with the word, else that of the nearest segment. Last, a single word amid
    another speaker's takes its neighbours' speaker where it lasts less than 0.3 s and its sureness is below
    0.6. Without segments every word is None.
    """
    if not segments:
        return [None] * len(words), []
    spoken: list[WordSpeaker] = []
    longest = max(segment.end - segment.start for segment in segments)
    first = 0
    for word in words:
        while first < len(segments) - 1 and segments[first].start + longest < word.start:
            first += 1
        likely = None if activity is None else _likely_speaker(word, activity)
        spoken.append(likely or _speaker_of(word, segments, first))
    smooth = list(spoken)
    for index in range(1, len(words) - 1):
        before, own, after = spoken[index - 1 : index + 2]
        short = words[index].end - words[index].start < _SHORT
        if short and own.sureness < _UNSURE and before.speaker == after.speaker != own.speaker:
            smooth[index] = replace(own, speaker=before.speaker)
    numbers: dict[int, int] = {}
    heard = [*(word.speaker for word in smooth), *(word.raw for word in smooth)]
    for speaker in [*heard, *(segment.speaker for segment in segments)]:
        numbers.setdefault(speaker, len(numbers))
    labelled = [replace(word, speaker=numbers[word.speaker], raw=numbers[word.raw]) for word in smooth]
    return list(labelled), [replace(segment, speaker=numbers[segment.speaker]) for segment in segments]


def _likely_speaker(word: HasTimes, activity: SpeakerActivity) -> WordSpeaker | None:
    """None if nobody is heard."""
    means = activity.mean(word.start, word.end)
    best = int(means.argmax())
    if means[best] <= _FLOOR:
        return None
    sureness = float(means[best] / np.maximum(means, _FLOOR).sum())
    return WordSpeaker(best, sureness, best, bool((np.delete(means, best) > 0.5).any()))


def _speaker_of(word: HasTimes, segments: Sequence[SpeakerSegment], first: int) -> WordSpeaker:
    """`first` is an index before which no segment reaches the word."""
    shares: dict[int, float] = {}
    nearest = segments[max(first - 1, 0)]
    for segment in segments[max(first - 1, 0) :]:
        if _gap(word, segment) < _gap(word, nearest):
            nearest = segment
        overlap = min(word.end, segment.end) - max(word.start, segment.start)
        if overlap > 0:
            shares[segment.speaker] = shares.get(segment.speaker, 0.0) + overlap
        if segment.start > word.end:
            break
    if not shares:
        return WordSpeaker(nearest.speaker, 0.0, nearest.speaker)
    best = max(shares, key=lambda speaker: shares[speaker])
    half = (word.end - word.start) / 2
    overlapped = any(share > half for speaker, share in shares.items() if speaker != best)
    return WordSpeaker(best, shares[best] / sum(shares.values()), best, overlapped)


def _gap(word: HasTimes, segment: SpeakerSegment) -> float:
    return max(segment.start - word.end, word.start - segment.end, 0.0)
