"""Which speaker said each word, from words with times and a diarizer's segments.

Pure functions; know no engine and no job.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from worker.diarization.base import SpeakerSegment
from worker.speech.guard import TimedWord

_UNSURE = 0.6
_SHORT = 0.3


@dataclass(frozen=True, slots=True)
class WordSpeaker:
    """The speaker of one word.

    `sureness` is the speaker's share of the time of the word that has a speaker (0 where none has). `raw` is
    the speaker before isolated words were taken over by their neighbours. `overlapped` says that another
    speaker's segments cover half of the word too.
    """

    speaker: int
    sureness: float
    raw: int
    overlapped: bool = False


def assign_speakers(
    words: Sequence[TimedWord], segments: Sequence[SpeakerSegment]
) -> list[WordSpeaker | None]:
    """A speaker for each word (both in order of their starts), numbered by arrival in the words.

    The speaker with most overlap with the word, else that of the nearest segment. Last, a single word amid
    another speaker's takes its neighbours' speaker where it lasts less than 0.3 s and its sureness is below
    0.6. Without segments every word is None.
    """
    return label_words(words, segments)[0]


def label_words(
    words: Sequence[TimedWord], segments: Sequence[SpeakerSegment]
) -> tuple[list[WordSpeaker | None], list[SpeakerSegment]]:
    """As `assign_speakers`, with the segments renumbered as the words are; speakers without a word come
    last."""
    if not segments:
        return [None] * len(words), []
    spoken: list[WordSpeaker] = []
    longest = max(segment.end - segment.start for segment in segments)
    first = 0
    for word in words:
        while first < len(segments) - 1 and segments[first].start + longest < word.start:
            first += 1
        spoken.append(_speaker_of(word, segments, first))
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


def _speaker_of(word: TimedWord, segments: Sequence[SpeakerSegment], first: int) -> WordSpeaker:
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


def _gap(word: TimedWord, segment: SpeakerSegment) -> float:
    return max(segment.start - word.end, word.start - segment.end, 0.0)
