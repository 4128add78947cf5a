"""A text of any length in a recording of any length: anchors, and forced alignment between them.

The CTC head's greedy words are matched with the text's. Where three words in a row agree, the text is cut
between two of them, at the time at which the head heard them; what lies between two cuts is aligned on its
best path by itself (the anchors of Moreno et al. 1998, "A recursive algorithm for the forced alignment of
very long audio segments"). Knows neither files nor who wrote the text.
"""

import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spool.errors import InvalidRequest
from spool.wer import normal_words
from worker.audio import SAMPLE_RATE
from worker.decode.alignment.aligner import MARKS, AlignedWord, CtcModel, align_words
from worker.decode.alignment.matching import match_words
from worker.models.base import Tokenizer
from worker.segmentation.chunker import Chunk

Spelled = tuple[str, tuple[int, ...]]
RUN = 3
"""How many words in a row must agree for an anchor."""
APART = 20.0
"""Seconds between two cuts at least: what is aligned at once, where there are anchors enough."""
MAX_CELLS = 20_000_000
"""Frames times states of the longest stretch without an anchor that is aligned; 5 bytes each. It is some six
minutes of speech; words of a longer one are laid between its ends evenly."""


@dataclass(frozen=True, slots=True)
class PlacedWord:
    """A word in seconds of the recording. `score`: the probability that the head gives its least probable
    token where it stands, marks apart; 0 where it has no place in the audio, None where it is not spelled."""

    text: str
    start: float
    end: float
    score: float | None


class RecordingFrames:
    """What a CTC head says of one recording, frame after frame: its best label, and the log-probabilities of
    the labels that a text needs, in a temporary file. Use as a context manager."""

    def __init__(self, model: CtcModel, spelled: Sequence[Spelled]) -> None:
        self._model, self._head = model, model.heads["ctc"]
        self._labels = sorted({token for _, own in spelled for token in own})
        self.columns = {token: column for column, token in enumerate([*self._labels, self._head.blank])}
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._best: list[NDArray[np.int32]] = []
        self._starts: list[NDArray[np.float64]] = []

    def __enter__(self) -> "RecordingFrames":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, chunks: Sequence[Chunk]) -> None:
        """The frames of these chunks' cores, encoded as one batch; in order of time, one channel."""
        encoded = self._model.encode([chunk.samples for chunk in chunks])
        samples_a_frame = self._model.info.frame_seconds * SAMPLE_RATE
        needed = mx.array([*self._labels, self._head.blank], mx.int32)
        for row, (chunk, length) in enumerate(zip(chunks, encoded.lengths.tolist(), strict=True)):
            places = chunk.span.start + np.arange(length) * samples_a_frame
            inside = (places >= chunk.span.core_start) & (places < chunk.span.core_end)
            if not inside.any():
                continue
            # An utterance alone: the bits of a product depend on its number of rows.
            log_probs = self._head.log_probs(encoded.frames[row, :length]).astype(mx.float32)
            self._best.append(np.array(mx.argmax(log_probs, axis=-1)).astype(np.int32)[inside])
            self._file.write(np.ascontiguousarray(np.array(log_probs[:, needed])[inside]).tobytes())
            self._starts.append(places[inside] / SAMPLE_RATE)

    @property
    def starts(self) -> NDArray[np.float64]:
        """When each frame begins, in seconds of the recording, [T]."""
        return np.concatenate(self._starts) if self._starts else np.zeros(0)

    @property
    def best(self) -> NDArray[np.int32]:
        """Each frame's most probable label, [T]."""
        return np.concatenate(self._best) if self._best else np.zeros(0, np.int32)

    def log_probs(self, first: int, last: int, tokens: Sequence[int]) -> NDArray[np.float32]:
        """float32 [last - first, N + 1]: a column for each of `tokens`, blank last."""
        width = len(self.columns)
        self._file.seek(first * width * 4)
        data = self._file.read((last - first) * width * 4)
        table = np.frombuffer(data, np.float32).reshape(-1, width)
        return table[:, [*(self.columns[token] for token in tokens), width - 1]]


def spell_folded(words: Sequence[str], tokenizer: Tokenizer) -> list[Spelled]:
    """Each word with its tokens, as it stands or else as its letters in lower case; none where the model
    has no token for it either way."""
    return [(word, _spelling(word, tokenizer)) for word in words]


def _spelling(word: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    for form in (word, word.lower(), " ".join(normal_words(word))):
        try:
            tokens = tuple(tokenizer.encode(form)) if form else ()
        except InvalidRequest:
            continue
        if tokens:
            return tokens
    return ()


def place_words(model: CtcModel, spelled: Sequence[Spelled], frames: RecordingFrames) -> list[PlacedWord]:
    """Every word of the text in the recording, in order."""
    starts = frames.starts
    cuts = find_cuts([text for text, _ in spelled], _heard(model, frames.best), model.info.frame_seconds)
    bounds = [(0, 0), *cuts, (len(spelled), len(starts))]
    placed: list[PlacedWord] = []
    for (word, frame), (next_word, next_frame) in itertools.pairwise(bounds):
        placed += _place(model, spelled[word:next_word], frames, starts, frame, next_frame)
    return placed


@dataclass(frozen=True, slots=True)
class HeardWord:
    """A word of the greedy search, and its frames [first, last)."""

    text: str
    first: int
    last: int


def _heard(model: CtcModel, best: NDArray[np.int32]) -> list[HeardWord]:
    changes = np.flatnonzero(np.diff(best, prepend=-1)) if len(best) else np.zeros(0, np.int64)
    ends = np.append(changes[1:], len(best))
    spoken = [
        (int(best[first]), int(first), int(last))
        for first, last in zip(changes, ends, strict=False)
        if best[first] != model.heads["ctc"].blank
    ]
    spans = model.tokenizer.words([token for token, _, _ in spoken])
    return [HeardWord(each.text, spoken[each.first][1], spoken[each.last - 1][2]) for each in spans]


def find_cuts(
    words: Sequence[str], heard: Sequence[HeardWord], frame_seconds: float
) -> list[tuple[int, int]]:
    """Where text and recording are cut, as (index of a word, frame at which the stretch before it ends), at
    least `APART` seconds from one another."""
    parts = [(part, at) for at, word in enumerate(words) for part in normal_words(word)]
    sounds = [(part, at) for at, word in enumerate(heard) for part in normal_words(word.text)]
    pairs = match_words([part for part, _ in parts], [part for part, _ in sounds])
    cuts: list[tuple[int, int]] = []
    run = 1
    for (before, sound_before), (part, sound) in itertools.pairwise(pairs):
        run = run + 1 if (part, sound) == (before + 1, sound_before + 1) else 1
        if run < RUN:
            continue
        left, right = heard[sounds[sound_before][1]], heard[sounds[sound][1]]
        word, frame = parts[part][1], (left.last + right.first + 1) // 2
        is_boundary = parts[before][1] < word and sounds[sound_before][1] < sounds[sound][1]
        if is_boundary and (frame - (cuts[-1][1] if cuts else 0)) * frame_seconds >= APART:
            cuts.append((word, frame))
    return cuts


def _place(
    model: CtcModel,
    spelled: Sequence[Spelled],
    frames: RecordingFrames,
    starts: NDArray[np.float64],
    first: int,
    last: int,
) -> list[PlacedWord]:
    """The words of one stretch in its frames [first, last)."""
    seconds = model.info.frame_seconds
    tokens = [token for _, own in spelled for token in own]
    aligned = None
    if (last - first) * (2 * len(tokens) + 1) <= MAX_CELLS and len(tokens) <= last - first:
        log_probs = frames.log_probs(first, last, tokens)
        aligned = align_words(log_probs, spelled, model.tokenizer.pieces, 1.0)
    if aligned is None:
        return _spread(spelled, starts, first, last, seconds)
    placed, at = [], 0
    for word in aligned:
        begin, end = first + int(word.start), first + int(word.end)
        start = float(starts[min(begin, last - 1)]) if last > first else 0.0
        stop = float(starts[end - 1]) + seconds if end > begin else start
        placed.append(PlacedWord(word.text, start, stop, _score(model, word, log_probs, at)))
        at += len(word.tokens)
    return placed


def _score(model: CtcModel, word: AlignedWord, log_probs: NDArray[np.float32], at: int) -> float | None:
    """`at`: the column of the word's first token."""
    letters = [
        float(log_probs[token.first : max(token.last, token.first + 1), at + index].max())
        for index, token in enumerate(word.tokens)
        if model.tokenizer.pieces[token.token] not in MARKS
    ]
    return float(np.exp(min(letters))) if letters else None


def _spread(
    spelled: Sequence[Spelled], starts: NDArray[np.float64], first: int, last: int, seconds: float
) -> list[PlacedWord]:
    """Words that do not fit, evenly over the stretch."""
    begin = float(starts[min(first, len(starts) - 1)]) if len(starts) else 0.0
    end = float(starts[last - 1]) + seconds if last > first else begin
    times = np.linspace(begin, end, len(spelled) + 1).tolist()
    return [
        PlacedWord(text, start, stop, 0.0 if own else None)
        for (text, own), start, stop in zip(spelled, times, times[1:], strict=False)
    ]
