"""Forced alignment of lines of words with what was heard, many at once.

A line is a chain of states: for each phone one, silence between the phones of a word, a gap between words;
before the first word and behind the last, anything. A frame costs what its state is less likely than the best
symbol, so the best free path costs nothing and a line's score is its log-likelihood ratio against it
(Viterbi, CTC's topology). In a gap silence is free, and each sound that begins in it costs `SOUND_COST`.
Plain numpy.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spool.sounds.lexicon import Pronunciation
from spool.sounds.phones import BEST, END, HEARD, PHONES, SILENCE, STEP, PhoneFrames

SOUND_COST = 2.0
COST_MAX = 11.5
"""Of a phone in one frame, nats."""
IMPOSSIBLE = -1e9
_GAP, _FREE = len(PHONES) + 1, len(PHONES) + 2
_BEYOND = -50.0
"""Of a frame beyond a line's own: only the anything behind it is free."""
CELLS_AT_ONCE = 400_000
"""Lines times states that a step works on, so that it stays in the cache."""


class Line(NamedTuple):
    """Words to align in the frames [first, last). A word without a pronunciation is empty: anything may be in
    its place."""

    first: int
    last: int
    words: tuple[Pronunciation, ...]

    @property
    def phones(self) -> int:
        """Of all its words."""
        return sum(map(len, self.words))


class WordScore(NamedTuple):
    """A word's log-likelihood ratio, and its frames [first, last)."""

    score: float
    first: int
    last: int


class Aligned(NamedTuple):
    """A line's log-likelihood ratio, at most 0, and its words'."""

    score: float
    words: tuple[WordScore, ...]


def score_lines(frames: PhoneFrames, lines: Sequence[Line]) -> NDArray[np.float32]:
    """The log-likelihood ratio of each line. A line with more phones than frames scores as if each of its
    phones were impossible."""
    scores = np.zeros(len(lines), np.float32)
    for group in _groups(lines):
        scores[group] = _viterbi(frames, [lines[number] for number in group])[0]
    return scores


def align_lines(frames: PhoneFrames, lines: Sequence[Line]) -> list[Aligned]:
    """The best alignment of each line."""
    found: list[Aligned] = [Aligned(0.0, ())] * len(lines)
    for group in _groups(lines, traced=True):
        own = [lines[number] for number in group]
        for number, line, score, states, costs in zip(group, own, *_viterbi_traced(frames, own), strict=True):
            found[number] = Aligned(score, _words_of(line, states, costs))
    return found


def _groups(lines: Sequence[Line], *, traced: bool = False) -> list[list[int]]:
    """Lines of like lengths together."""
    order = sorted(range(len(lines)), key=lambda at: (lines[at].last - lines[at].first, lines[at].phones))
    groups: list[list[int]] = []
    room = 0
    for number in order:
        line = lines[number]
        cells = 2 * line.phones + 1
        if traced:
            cells *= max(1, line.last - line.first)
        most = 20 * CELLS_AT_ONCE if traced else CELLS_AT_ONCE
        widest = (
            max([cells, *(2 * lines[each].phones + 1 for each in groups[-1])])
            if groups and not traced
            else cells
        )
        if not groups or room + widest > most or len(groups[-1]) * widest > most:
            groups.append([])
            room = 0
        groups[-1].append(number)
        room += cells
    return groups


class _Chain(NamedTuple):
    """The states of several lines: the class of each [B, S], whether two states back may come before it [B,
    S], and the last state of each line [B]."""

    classes: NDArray[np.int64]
    skips: NDArray[np.bool_]
    ends: NDArray[np.int64]


def _chain(lines: Sequence[Line]) -> _Chain:
    width = max(2 * line.phones + 1 for line in lines)
    classes = np.full((len(lines), width), _FREE, np.int64)
    skips = np.zeros((len(lines), width), np.bool_)
    ends = np.zeros(len(lines), np.int64)
    for row, line in enumerate(lines):
        state, before = 0, -1
        for number, word in enumerate(line.words):
            if not word:
                classes[row, state] = _FREE
                continue
            behind = line.words[number + 1 :]
            for place, phone in enumerate(word):
                classes[row, state + 1] = phone
                inner = place + 1 < len(word)
                classes[row, state + 2] = SILENCE if inner else _GAP if any(behind) else _FREE
                skips[row, state + 1] = state > 0 and phone != before
                before, state = phone, state + 2
        ends[row] = state
    return _Chain(classes, skips, ends)


def _emissions(frames: PhoneFrames, first: int, last: int) -> NDArray[np.float32]:
    """float32 [last - first + 1, classes]: of each phone, silence, gap and anything; the last row stands for
    all that is beyond a line."""
    table = frames.table[first:last]
    costs = np.zeros((len(table) + 1, _FREE + 1), np.float32)
    np.multiply(table[:, : END + 1], np.float32(-STEP), out=costs[:-1, : END + 1])
    np.maximum(costs, np.float32(-COST_MAX), out=costs)
    quiet = np.maximum(costs[:-1, SILENCE], costs[:-1, END])
    costs[:-1, _GAP] = np.maximum(quiet, np.where(_is_quiet(table), 0.0, -SOUND_COST * table[:, HEARD]))
    costs[-1, :_FREE] = _BEYOND
    return costs


def _join_emissions(
    frames: PhoneFrames, lines: Sequence[Line]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The emissions of the lines' frames, each stretch once however far apart they are, and where each line's
    begin."""
    stretches = list(dict.fromkeys((line.first, line.last) for line in lines))
    offsets = np.cumsum([0, *(last - first for first, last in stretches)])
    places = dict(zip(stretches, offsets.tolist(), strict=False))
    parts = [_emissions(frames, *stretch) for stretch in stretches]
    costs = np.concatenate([*(part[:-1] for part in parts), parts[0][-1:]])
    return costs, np.array([places[line.first, line.last] for line in lines])


def _is_quiet(table: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Where silence or a word's end is the best that is heard."""
    quiet: NDArray[np.bool_] = np.minimum(table[:, SILENCE], table[:, END]) == 0
    return quiet


def _viterbi(
    frames: PhoneFrames, lines: Sequence[Line], back: NDArray[np.uint8] | None = None
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scores and last states of lines, [B] each. back: filled with how many states back each state came from,
    [T, B, S]."""
    chain = _chain(lines)
    costs, starts = _join_emissions(frames, lines)
    stops = starts + np.array([line.last - line.first for line in lines])
    longest = int((stops - starts).max())
    best = np.full(chain.classes.shape, IMPOSSIBLE, np.float32)
    best[:, 0] = 0
    stepped, skipped = best.copy(), np.full_like(best, IMPOSSIBLE)
    stepped[:] = IMPOSSIBLE
    width, beyond = costs.shape[1], len(costs) - 1
    flat, moved = costs.ravel(), np.empty_like(best)
    no_skip = np.where(chain.skips, np.float32(0), np.float32(IMPOSSIBLE))[:, 2:]
    for step in range(longest):
        rows = np.where(starts + step < stops, starts + step, beyond)
        stepped[:, 1:] = best[:, :-1]
        np.add(best[:, :-2], no_skip, out=skipped[:, 2:])
        np.maximum(best, stepped, out=moved)
        np.maximum(moved, skipped, out=moved)
        if back is not None:
            back[step] = np.where(moved == best, 0, np.where(moved == stepped, 1, 2))
        np.add(moved, flat.take(rows[:, None] * width + chain.classes), out=best)
    at = np.arange(len(lines))
    closed, open_ = best[at, chain.ends], best[at, np.maximum(chain.ends - 1, 0)]
    scores = np.maximum(closed, open_)
    impossible = np.array([-COST_MAX * line.phones for line in lines], np.float32)
    return np.maximum(scores, impossible), np.where(
        closed >= open_, chain.ends, np.maximum(chain.ends - 1, 0)
    )


def _viterbi_traced(
    frames: PhoneFrames, lines: Sequence[Line]
) -> tuple[list[float], list[NDArray[np.int64]], list[NDArray[np.float32]]]:
    """Scores, and of each line the state and its cost frame by frame."""
    width = max(2 * line.phones + 1 for line in lines)
    longest = max(line.last - line.first for line in lines)
    back = np.zeros((longest, len(lines), width), np.uint8)
    scores, state = _viterbi(frames, lines, back)
    path = np.zeros((longest, len(lines)), np.int64)
    at = np.arange(len(lines))
    for step in range(longest - 1, -1, -1):
        path[step] = state
        state = state - back[step, at, state]
    chain = _chain(lines)
    states, costs = [], []
    for row, line in enumerate(lines):
        own = path[: line.last - line.first, row]
        emissions = _emissions(frames, line.first, line.last)
        states.append(own)
        costs.append(emissions[np.arange(len(own)), chain.classes[row, own]])
    return scores.tolist(), states, costs


def _words_of(line: Line, states: NDArray[np.int64], costs: NDArray[np.float32]) -> tuple[WordScore, ...]:
    words, state = [], 1
    for word in line.words:
        last = state + 2 * len(word) - 2
        inside = np.flatnonzero((states >= state) & (states <= last) & bool(word))
        if len(inside):
            score = max(float(costs[inside].sum()), -COST_MAX * len(word))
            words.append(WordScore(score, line.first + int(inside[0]), line.first + int(inside[-1]) + 1))
        else:
            words.append(WordScore(-COST_MAX * len(word), line.first, line.first))
        state += 2 * len(word)
    return tuple(words)


def mean_certainty(frames: PhoneFrames, first: int, last: int) -> float:
    """The mean probability of the best symbol where sounds are heard, 0 to 1; 1 where there are none."""
    table = frames.table[first:last]
    sounding = table[~_is_quiet(table), BEST]
    return float(np.exp(sounding * -STEP).mean()) if len(sounding) else 1.0
