"""A text of any length in a recording of any length: anchors, and forced alignment between them.

The words of the CTC head's greedy search are matched with those of the text. Where three consecutive words
agree, the text is cut between two of them; the parts between cuts are aligned separately (the anchors of
Moreno et al. 1998, "A recursive algorithm for the forced alignment of very long audio segments"). Plain
numpy.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spool.domain.recognition import ChunkSpan
from spool.wer import normal_words
from worker.audio.resample import SAMPLE_RATE
from worker.decode.alignment.emissions import Emissions
from worker.decode.alignment.matching import match_words
from worker.decode.alignment.words import AlignedWord, align_words
from worker.models.base import Spelling

RUN = 3
"""The number of consecutive words that must agree for an anchor."""
APART = 20.0
"""The shortest distance of two cuts in seconds."""
MAX_CELLS = 20_000_000
"""Frames times states, 5 bytes each, of the longest stretch between anchors that is aligned: some six minutes
of speech. Words of a longer stretch are spread evenly."""


@dataclass(frozen=True, slots=True)
class PlacedWord:
    """A word in seconds of the recording. `score`: the probability of its least probable token where it is
    placed, except punctuation; 0 if it has no place in the audio, None if the model cannot spell it."""

    text: str
    start: float
    end: float
    score: float | None


class HeardWord(Protocol):
    """A word of the greedy search, in seconds of the recording."""

    @property
    def text(self) -> str:
        """The spelling that was recognized."""

    @property
    def start(self) -> float:
        """Its first token's frame."""

    @property
    def end(self) -> float:
        """After its last token's frame."""


def core_emissions(span: ChunkSpan, emissions: Emissions, frame_seconds: float) -> Emissions:
    """The emissions of the frames that begin within the chunk's core."""
    first, last = (_frame_at(span, at, frame_seconds) for at in (span.core_start, span.core_end))
    return emissions.between(first, last)


def _frame_at(span: ChunkSpan, sample: int, frame_seconds: float) -> int:
    """The first frame of the chunk that begins at `sample` of the recording or later."""
    return math.ceil((sample - span.start) / (frame_seconds * SAMPLE_RATE))


class RecordingFrames:
    """The frames of a recording's chunks in order. `chunks`: each with its `core_emissions`, in any order;
    the labels are those of `spelling`."""

    def __init__(
        self, chunks: Sequence[tuple[ChunkSpan, Emissions]], spelling: Spelling, frame_seconds: float
    ) -> None:
        self._columns = {label: column for column, label in enumerate(spelling.labels)}
        self.frame_seconds = frame_seconds
        in_order = sorted(chunks, key=lambda chunk: chunk[0].core_start)
        self._emissions = Emissions.join([emissions for _, emissions in in_order])
        self._offsets = np.append(0, np.cumsum(self._emissions.counts, dtype=np.int64))
        starts = [_starts(span, len(emissions.counts), frame_seconds) for span, emissions in in_order]
        self.starts: NDArray[np.float64] = np.concatenate([np.zeros(0), *starts])
        """When each frame begins, in seconds of the recording, [T]."""

    def log_probs(self, first: int, last: int, tokens: Sequence[int]) -> NDArray[np.float32]:
        """float32 [last - first, N + 1]: a column for each of `tokens`, blank last."""
        width = len(self._columns) + 1
        kept = slice(self._offsets[first], self._offsets[last])
        each = self._emissions
        stretch = Emissions(each.counts[first:last], each.columns[kept], each.costs[kept])
        return stretch.dense(width)[:, [*(self._columns[token] for token in tokens), width - 1]]


def _starts(span: ChunkSpan, frames: int, frame_seconds: float) -> NDArray[np.float64]:
    """The start times of the frames of a chunk's core."""
    first = _frame_at(span, span.core_start, frame_seconds)
    return span.start / SAMPLE_RATE + (first + np.arange(frames, dtype=np.float64)) * frame_seconds


def place_words(
    texts: Sequence[str],
    spelling: Spelling,
    heard: Sequence[HeardWord],
    frames: RecordingFrames,
    check: Callable[[], None] = lambda: None,
) -> list[PlacedWord]:
    """Every word of the text in the recording, in order. heard: the words of the greedy search, by time.
    `check` is called now and then and may raise to stop."""
    spelled = [(text, spelling.tokens[text]) for text in texts]
    cuts = find_cuts(texts, heard, check)
    at = np.searchsorted(frames.starts, [seconds for _, seconds in cuts]).tolist()
    bounds = [(0, 0), *zip((word for word, _ in cuts), at, strict=True), (len(texts), len(frames.starts))]
    placed: list[PlacedWord] = []
    for (word, frame), (next_word, next_frame) in itertools.pairwise(bounds):
        check()
        placed += _place(spelled[word:next_word], spelling, frames, frame, next_frame)
    return placed


def find_cuts(
    words: Sequence[str], heard: Sequence[HeardWord], check: Callable[[], None] = lambda: None
) -> list[tuple[int, float]]:
    """The cuts of text and recording, as (index of a word, second at which the stretch before it ends), at
    least `APART` seconds apart."""
    parts = [(part, at) for at, word in enumerate(words) for part in normal_words(word)]
    sounds = [(part, at) for at, word in enumerate(heard) for part in normal_words(word.text)]
    pairs = match_words([part for part, _ in parts], [part for part, _ in sounds], check)
    cuts: list[tuple[int, float]] = []
    run = 1
    for (before, sound_before), (part, sound) in itertools.pairwise(pairs):
        run = run + 1 if (part, sound) == (before + 1, sound_before + 1) else 1
        if run < RUN:
            continue
        left, right = heard[sounds[sound_before][1]], heard[sounds[sound][1]]
        word, second = parts[part][1], (left.end + right.start) / 2
        is_boundary = parts[before][1] < word and sounds[sound_before][1] < sounds[sound][1]
        if is_boundary and second - (cuts[-1][1] if cuts else 0.0) >= APART:
            cuts.append((word, second))
    return cuts


def _place(
    spelled: Sequence[tuple[str, tuple[int, ...]]],
    spelling: Spelling,
    frames: RecordingFrames,
    first: int,
    last: int,
) -> list[PlacedWord]:
    """The words of one stretch in its frames [first, last)."""
    starts, seconds = frames.starts, frames.frame_seconds
    tokens = [token for _, own in spelled for token in own]
    aligned = None
    if (last - first) * (2 * len(tokens) + 1) <= MAX_CELLS and len(tokens) <= last - first:
        log_probs = frames.log_probs(first, last, tokens)
        aligned = align_words(log_probs, spelled, spelling.marks, 1.0)
    if aligned is None:
        return _spread(spelled, starts, first, last, seconds)
    placed, at = [], 0
    for word in aligned:
        begin, end = first + int(word.start), first + int(word.end)
        start = float(starts[min(begin, last - 1)]) if last > first else 0.0
        stop = float(starts[end - 1]) + seconds if end > begin else start
        placed.append(PlacedWord(word.text, start, stop, _score(word, spelling, log_probs, at)))
        at += len(word.tokens)
    return placed


def _score(word: AlignedWord, spelling: Spelling, log_probs: NDArray[np.float32], at: int) -> float | None:
    """`at`: the column of the word's first token."""
    letters = [
        float(log_probs[token.first : max(token.last, token.first + 1), at + index].max())
        for index, token in enumerate(word.tokens)
        if token.token not in spelling.marks
    ]
    return float(np.exp(min(letters))) if letters else None


def _spread(
    spelled: Sequence[tuple[str, tuple[int, ...]]],
    starts: NDArray[np.float64],
    first: int,
    last: int,
    seconds: float,
) -> list[PlacedWord]:
    """Words that cannot be aligned, spread evenly over the stretch."""
    begin = float(starts[min(first, len(starts) - 1)]) if len(starts) else 0.0
    end = float(starts[last - 1]) + seconds if last > first else begin
    times = np.linspace(begin, end, len(spelled) + 1).tolist()
    return [
        PlacedWord(text, start, stop, 0.0 if own else None)
        for (text, own), start, stop in zip(spelled, times, times[1:], strict=False)
    ]
