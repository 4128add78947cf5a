"""A transcript cut into the passages that the search finds: stretches of one channel and one speaker.

A passage has up to 40 words of its own and, after them, the first words of what follows, so that a phrase is
found across the cut. Every word of a transcript is the own word of exactly one passage (the audit counts
them).
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import NamedTuple, Self

from spool.domain.archive.readings import AlternativeReading, readings_between, readings_of
from spool.domain.archive.tokens import pairs_of, sound_of, tokens_of
from spool.domain.transcript import Transcript, Word

MOST_WORDS = 40
PAUSE_SECONDS = 2.0
"""A pause that ends a passage of at least half the words."""
FOLLOWING = 10
"""How many words after its own a passage has, at the most."""


class Spoken(NamedTuple):
    """One word; times in seconds of the recording, `confidence` from 0 to 1."""

    text: str
    start: float
    end: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of a transcript. `words` are its `own` words, then those that follow. `terms` is its content
    in the index, empty if it was read from there. `readings`: alternatives to some of its words, if the job
    kept them."""

    channel: int
    speaker: str | None
    own: int
    words: tuple[Spoken, ...]
    terms: tuple[str, ...] = ()
    readings: tuple[AlternativeReading, ...] = ()

    @classmethod
    def of(
        cls,
        channel: int,
        speaker: str | None,
        own: int,
        words: Sequence[Spoken],
        readings: tuple[AlternativeReading, ...] = (),
    ) -> Self:
        """A passage with its terms: the tokens of its words in order."""
        terms = chain.from_iterable(tokens_of(word.text) for word in words)
        return cls(channel, speaker, own, tuple(words), tuple(terms), readings)

    @property
    def reading_terms(self) -> tuple[str, ...]:
        """Its content in the index of alternatives: its terms and, after a tilde each, those of its readings.
        Empty if it has no readings, or no terms."""
        if not self.readings:
            return ()
        return tuple(sorted({*self.terms, *(f"~{token}" for token in _read_tokens(self))}))

    @property
    def pairs(self) -> list[int]:
        """The numbers of adjacent tokens (`pairs_of`), also with each reading applied, sorted: a phrase found
        in the passage has all its pairs among them."""
        pairs = set(pairs_of(self.terms))
        if self.readings:
            word_tokens = [tokens_of(word.text) for word in self.words]
            for reading in self.readings:
                before = next((each[-1:] for each in reversed(word_tokens[: reading.first]) if each), ())
                after = next((each[:1] for each in word_tokens[reading.last + 1 :] if each), ())
                pairs.update(pairs_of([*before, *tokens_of(reading.text), *after]))
        return sorted(pairs)


def passages_of(transcript: Transcript) -> list[Passage]:
    """The passages of a transcript, in order of their start. Spaces within a word become no-break spaces,
    since a plain one would end the word."""
    return sorted(cut_passages(transcript), key=lambda passage: (passage.words[0].start, passage.channel))


def cut_passages(transcript: Transcript) -> Iterator[Passage]:
    """The passages of a transcript, in order of its words."""
    readings = readings_of(transcript)
    begin = 0
    for channel, group in groupby(transcript.words, key=lambda word: word.channel):
        words = list(group)
        every = [
            Spoken("\u00a0".join(word.text.split()), word.start, word.end, word.confidence) for word in words
        ]
        for first, last in _cuts(words):
            spoken = every[first : last + FOLLOWING]
            heard = readings_between(readings, begin + first, begin + first + len(spoken))
            yield Passage.of(channel, words[first].speaker, last - first, spoken, heard)
        begin += len(words)


def sounds_of(passages: Iterable[Passage]) -> list[tuple[str, str]]:
    """Each different word of indexed passages and their readings that has a sound, preceded by its sound; in
    order."""
    tokens = {token for passage in passages for token in chain(passage.terms, _read_tokens(passage))}
    return sorted((sound, token) for token in tokens if (sound := sound_of(token)))


def digest_of(passages: Iterable[Passage], sounds: Iterable[tuple[str, str]]) -> str:
    """SHA-256 (hex) of the words of passages, in any order, with their speakers, readings and sounds."""
    lines = sorted(
        f"{each.channel} {each.speaker} {each.words[0].start:.3f} {each.own} "
        + " ".join(word.text for word in each.words)
        + "".join(f"\n{reading}" for reading in each.readings)
        for each in passages
    ) + sorted(f"{sound} {token}" for sound, token in sounds)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _read_tokens(passage: Passage) -> Iterator[str]:
    return (token for reading in passage.readings for token in tokens_of(reading.text))


def _cuts(words: Sequence[Word]) -> Iterator[tuple[int, int]]:
    """The first word of each passage, and the one after its last."""
    first = 0
    for at in range(1, len(words) + 1):
        full = at - first >= MOST_WORDS
        if (
            at == len(words)
            or full
            or words[at].speaker != words[first].speaker
            or (at - first >= MOST_WORDS // 2 and words[at].start - words[at - 1].end >= PAUSE_SECONDS)
        ):
            yield first, at
            first = at
