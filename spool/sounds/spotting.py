"""How well phones fit what was heard in many short windows, and where in each they fit best.

A path through the phones (CTC's topology: silence may stand between two, a phone may last) begins anywhere in
its window and ends anywhere; its score is its log-likelihood ratio against the best free path, a phone. Plain
numpy, all windows at once.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spool.sounds.lexicon import Pronunciation
from spool.sounds.phones import SILENCE, STEP

_NEVER = np.float32(-1e9)
_AT_ONCE = 512


class Spots(NamedTuple):
    """Of each window: the score a phone, at most 0, and the frames [first, last)."""

    scores: NDArray[np.float32]
    first: NDArray[np.int32]
    last: NDArray[np.int32]


def spot_phones(costs: NDArray[np.uint8], phones: Pronunciation) -> Spots:
    """costs: uint8 [N, T, SILENCE + 1], as `blocks.KeptFrames` has them."""
    parts = [_spot(costs[at : at + _AT_ONCE], phones) for at in range(0, max(len(costs), 1), _AT_ONCE)]
    return Spots(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _spot(costs: NDArray[np.uint8], phones: Pronunciation) -> Spots:
    windows, frames, _ = costs.shape
    classes = np.full(2 * len(phones) - 1, SILENCE, np.intp)
    classes[::2] = phones
    # Two steps at once: over the silence between two phones, unless they are the same.
    blocked = np.array([0 if one != other else 1 for one, other in zip(phones[1:], phones, strict=False)])
    emissions = np.multiply(costs.transpose(1, 2, 0)[:, classes], np.float32(-STEP), dtype=np.float32)
    states = len(classes)
    best = np.full((states, windows), _NEVER, np.float32)
    begun = np.zeros((states, windows), np.int32)
    scores = np.full(windows, _NEVER, np.float32)
    first, last = np.zeros(windows, np.int32), np.zeros(windows, np.int32)
    same = np.flatnonzero(blocked) * 2 + 2
    for at in range(frames):
        came, since = best.copy(), begun.copy()
        _take(came[1:], since[1:], best[:-1], begun[:-1])
        skipping = best[:-2:2].copy()
        if len(same):
            skipping[(same - 2) // 2] = _NEVER
        _take(came[2::2], since[2::2], skipping, begun[:-2:2])
        fresh = came[0] < 0
        came[0] = np.where(fresh, 0, came[0])
        since[0] = np.where(fresh, at, since[0])
        best, begun = came + emissions[at], since
        better = best[-1] > scores
        scores = np.where(better, best[-1], scores)
        first, last = np.where(better, begun[-1], first), np.where(better, at + 1, last)
    return Spots(scores / np.float32(len(phones)), first, last)


def _take(
    came: NDArray[np.float32], since: NDArray[np.int32], other: NDArray[np.float32], begun: NDArray[np.int32]
) -> None:
    """Take the other paths where they are better."""
    better = other > came
    np.copyto(came, other, where=better)
    np.copyto(since, begun, where=better)
