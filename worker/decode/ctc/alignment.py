"""When tokens were spoken, by the best path of a CTC head through them (Viterbi; Kürzinger et al. 2020)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def align_tokens(log_probs: NDArray[np.float32], tokens: Sequence[int]) -> NDArray[np.int64] | None:
    """The frame of each token's most probable label on the best path: log_probs [T, V + 1], blank last ->
    int64 [tokens], not decreasing. None where the tokens do not fit into the frames."""
    frames, blank = len(log_probs), log_probs.shape[1] - 1
    if not tokens:
        return np.zeros(0, np.int64)
    # Blank, token, blank, ..., token, blank.
    labels = np.full(2 * len(tokens) + 1, blank)
    labels[1::2] = tokens
    skips = np.zeros(len(labels), bool)
    skips[3::2] = labels[3::2] != labels[1:-2:2]
    came = np.zeros((frames, len(labels)), np.int8)
    score = np.full(len(labels), -np.inf)
    for frame in range(frames):
        if frame == 0:
            score[:2] = 0.0
        else:
            ways = np.full((3, len(labels)), -np.inf)
            ways[0], ways[1, 1:] = score, score[:-1]
            ways[2, 2:] = np.where(skips[2:], score[:-2], -np.inf)
            came[frame] = ways.argmax(axis=0)
            score = ways.max(axis=0)
        score = score + log_probs[frame, labels]
    state = len(labels) - 1 if score[-1] >= score[-2] else len(labels) - 2
    if not np.isfinite(score[state]):
        return None
    path = np.empty(frames, np.int64)
    for frame in range(frames - 1, -1, -1):
        path[frame] = state
        state -= int(came[frame, state])
    times = np.empty(len(tokens), np.int64)
    for index, token in enumerate(tokens):
        own = np.flatnonzero(path == 2 * index + 1)
        times[index] = own[log_probs[own, token].argmax()]
    return times
