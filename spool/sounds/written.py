"""Which of the written words stand where phones were heard: those that are said most like them."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from spool.sounds.letters import spell_sounds
from spool.sounds.lexicon import Lexicon, Pronunciation
from spool.wer import edit_distance

MOST_WORDS = 6
"""A name that was not understood becomes some short words, hardly more."""
PHONE_SECONDS = 0.1
NEAR_SECONDS = 0.15
"""By which the times of words and of sounds may miss each other."""


class TimedWord(NamedTuple):
    """A written word, and when it is said."""

    text: str
    start: float
    end: float


def find_written(
    words: Sequence[TimedWord], start: float, end: float, phones: Pronunciation, lexicon: Lexicon | None
) -> tuple[int, int] | None:
    """The first and last of the words that stand for phones which were heard from `start` to `end`: a run of
    words there costs what its sounds and its times differ. None where there are no words."""
    there = [
        at
        for at, word in enumerate(words)
        if word.start < end + NEAR_SECONDS and start - NEAR_SECONDS < word.end
    ]
    runs = [
        (first, last)
        for first in there
        for last in there
        if first <= last < first + MOST_WORDS and words[first].start < end and start < words[last].end
    ]

    def cost(run: tuple[int, int]) -> float:
        own = words[run[0] : run[1] + 1]
        missed = abs(own[0].start - start) + abs(own[-1].end - end)
        return _distance([word.text for word in own], phones, lexicon) + missed / PHONE_SECONDS

    return min(runs, key=cost, default=None)


def _distance(texts: Sequence[str], phones: Pronunciation, lexicon: Lexicon | None) -> int:
    """How many phones differ."""
    said = list(chain.from_iterable(_say(text, lexicon) for text in texts))
    return edit_distance(list(map(str, phones)), list(map(str, said)))


def _say(text: str, lexicon: Lexicon | None) -> Pronunciation:
    ways: Iterator[Pronunciation] = chain(lexicon.pronounce(text) if lexicon else (), spell_sounds(text))
    return next(ways, ())
