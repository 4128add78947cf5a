"""Two transcripts of one recording, word by word: where they differ, and how much (WER). Pure.

Words are compared as WER compares them (`spool.wer`), so that case and punctuation are no difference. Where
both keep the recording's channels apart, each channel is compared by itself.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from spool.domain.transcript import Transcript, Word
from spool.wer import WordErrors, normal_words
from spool.word_alignment import align_words


@dataclass(frozen=True, slots=True)
class Difference:
    """A stretch where two transcripts have other words. `base` and `other` are the words, in order, either
    may be empty; `start` and `end` in seconds."""

    channel: int
    start: float
    end: float
    base: tuple[Word, ...]
    other: tuple[Word, ...]

    @property
    def doubt(self) -> float:
        """One less the confidence of the least certain word of either side."""
        return 1 - min(word.confidence for word in (*self.base, *self.other))


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences by time, and the errors of the other transcript if every word of `base` were right."""

    errors: WordErrors
    differences: tuple[Difference, ...]


def compare(base: Transcript, other: Transcript) -> Comparison:
    """Compare the words of two transcripts; takes time with the product of their lengths."""
    ours, theirs = _by_channel(base), _by_channel(other)
    if set(ours) != set(theirs):
        ours, theirs = {0: _in_order(base.words)}, {0: _in_order(other.words)}
    errors = WordErrors(0, 0)
    differences: list[Difference] = []
    for channel in sorted(ours):
        one, two = _Spelled(ours[channel]), _Spelled(theirs[channel])
        pairs = align_words(one.texts, two.texts)
        same = [(a, b) for a, b in pairs if one.texts[a] == two.texts[b]]
        edits = len(one.texts) + len(two.texts) - len(pairs) - len(same)
        errors += WordErrors(edits, len(one.texts))
        differences += _differences(channel, one, two, same)
    return Comparison(errors, tuple(sorted(differences, key=lambda each: (each.start, each.channel))))


class _Spelled:
    """Words and what WER compares of them; `owners` are the words that the texts belong to."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = words
        self.owners, self.texts = [], []
        for at, word in enumerate(words):
            for text in normal_words(word.text):
                self.owners.append(at)
                self.texts.append(text)

    owners: list[int]
    texts: list[str]

    def between(self, first: int, last: int) -> tuple[Word, ...]:
        """The words of the texts from `first` until before `last`."""
        return tuple(self.words[at] for at, _ in groupby(self.owners[first:last]))


def _differences(
    channel: int, one: _Spelled, two: _Spelled, same: Sequence[tuple[int, int]]
) -> Iterator[Difference]:
    """What lies between the words that are the same."""
    before = (-1, -1)
    for here in (*same, (len(one.texts), len(two.texts))):
        ours, theirs = one.between(before[0] + 1, here[0]), two.between(before[1] + 1, here[1])
        if ours or theirs:
            words = (*ours, *theirs)
            start, end = min(word.start for word in words), max(word.end for word in words)
            yield Difference(channel, start, end, ours, theirs)
        before = here


def _in_order(words: Sequence[Word]) -> list[Word]:
    return sorted(words, key=lambda word: word.start)


def _by_channel(transcript: Transcript) -> dict[int, list[Word]]:
    channels: dict[int, list[Word]] = defaultdict(list)
    for word in transcript.words:
        channels[word.channel].append(word)
    return channels
