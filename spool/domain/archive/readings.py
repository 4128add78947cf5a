"""Readings: what else was recognised, from the alternatives of words and the n-best lists of chunks, each in
place of words of the transcript.

A reading is short, and there are few of them at a place: it leaves out what a hypothesis has in common with
the transcript.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import NamedTuple

from spool.domain.archive.tokens import tokens_of
from spool.domain.transcript import Transcript, Word

MOST_ALTERNATIVES, MOST_HYPOTHESES = 5, 8
"""Alternatives of a word, and hypotheses of a chunk besides its first."""
MOST_READINGS_OF_PASSAGE = 200
LONGEST = 8
"""The most words of a reading, and the most that it replaces."""


class AlternativeReading(NamedTuple):
    """`text` in place of the words `first` to `last`. confidence: its probability, from 0 to 1; None for one
    from an n-best list, whose scores are not probabilities."""

    first: int
    last: int
    text: str
    confidence: float | None


def readings_of(transcript: Transcript) -> list[AlternativeReading]:
    """All distinct readings that differ from the transcript, by their first word."""
    words = transcript.words
    kept: dict[tuple[int, int, tuple[str, ...]], AlternativeReading] = {}
    for reading in (*_of_words(words), *_of_chunks(transcript)):
        tokens = tokens_of(reading.text)
        spoken = _tokens(word.text for word in words[reading.first : reading.last + 1])
        if tokens and tokens != spoken:
            kept.setdefault((reading.first, reading.last, tokens), reading)
    return sorted(kept.values(), key=lambda reading: reading.first)


def readings_between(
    readings: Sequence[AlternativeReading], first: int, after: int
) -> tuple[AlternativeReading, ...]:
    """The readings of the words from `first` until before `after`, counted from `first`; if there are too
    many, the most probable. `readings` are in order of their first word."""
    begin = bisect_left(readings, first, key=lambda reading: reading.first)
    end = bisect_left(readings, after, key=lambda reading: reading.first)
    inside = [reading for reading in readings[begin:end] if reading.last < after]
    likeliest = sorted(inside, key=lambda reading: -(reading.confidence or 0.0))[:MOST_READINGS_OF_PASSAGE]
    return tuple(
        reading._replace(first=reading.first - first, last=reading.last - first)
        for reading in sorted(likeliest, key=lambda reading: (reading.first, reading.last))
    )


def _of_words(words: Sequence[Word]) -> Iterator[AlternativeReading]:
    for at, word in enumerate(words):
        for other in word.alternatives[:MOST_ALTERNATIVES]:
            yield AlternativeReading(at, at, " ".join(other.text.split()), other.confidence)


def _of_chunks(transcript: Transcript) -> Iterator[AlternativeReading]:
    """Where the hypotheses of a chunk differ from the words within its time."""
    if not transcript.nbest:
        return
    channels: dict[int, list[int]] = {}
    for at, word in enumerate(transcript.words):
        channels.setdefault(word.channel, []).append(at)
    middles = {
        channel: [(transcript.words[at].start + transcript.words[at].end) / 2 for at in owned]
        for channel, owned in channels.items()
    }
    for chunk in transcript.nbest:
        times = middles.get(chunk.channel, [])
        inside = slice(bisect_left(times, chunk.start), bisect_left(times, chunk.end))
        owned = channels.get(chunk.channel, [])[inside]
        for hypothesis in islice(chunk.hypotheses, 1, 1 + MOST_HYPOTHESES):
            yield from _differences(transcript.words, owned, hypothesis.text.split())


def _differences(
    words: Sequence[Word], owned: Sequence[int], heard: Sequence[str]
) -> Iterator[AlternativeReading]:
    """At the edges of a chunk a hypothesis may have words of the next chunk, so additional words there are
    left out."""
    ours = [tokens_of(words[at].text) for at in owned]
    theirs = [tokens_of(text) for text in heard]
    steps = SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    for kind, first, after, begin, end in steps:
        if kind not in {"replace", "insert"} or max(after - first, end - begin) > LONGEST:
            continue
        at_edge = first == 0 or after == len(ours)
        if at_edge and end - begin > after - first:
            continue
        text = " ".join(heard[begin:end])
        last = after - 1
        if kind == "insert":
            first = last
            text = f"{words[owned[first]].text} {text}"
        if owned[last] - owned[first] == last - first:
            yield AlternativeReading(owned[first], owned[last], text, None)


def _tokens(texts: Iterator[str]) -> tuple[str, ...]:
    return tuple(token for text in texts for token in tokens_of(text))
