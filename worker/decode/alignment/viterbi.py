"""The best path of given tokens through a CTC model's frames (Graves et al. 2006, section 4.1, with the
maximum for the sum). Pure; knows neither words nor models.
"""

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
NEVER = np.float32(-3.4e38)


def align_tokens(log_probs: Float32, tokens: NDArray[np.int64]) -> list[tuple[int, int]] | None:
    """The half-open range of frames of each token on the best path.

    log_probs: [T, N + 1], a column for each of the N tokens in order, and blank last. tokens: [N] ids, which
    identify equal neighbours. None if there are more tokens than frames, or a number is not finite. Of equal
    paths the one that changes state latest.
    """
    frames, count = log_probs.shape[0], len(tokens)
    if count == 0:
        return []
    if count > frames or not np.isfinite(log_probs).all():
        return None
    # Blanks between and around the tokens: state 2k + 1 is token k.
    columns = np.full(2 * count + 1, count)
    columns[1::2] = np.arange(count)
    emissions = log_probs[:, columns].astype(np.float32)
    skips = np.zeros(len(columns), bool)
    skips[3::2] = tokens[1:] != tokens[:-1]
    path = _best_path(emissions, skips)
    first = np.searchsorted(path, np.arange(count) * 2 + 1, side="left")
    after = np.searchsorted(path, np.arange(count) * 2 + 1, side="right")
    if (first == after).any():  # equal neighbours need a blank between them, and there was no frame for it
        return None
    return list(zip(first.tolist(), after.tolist(), strict=True))


def _best_path(emissions: Float32, skips: NDArray[np.bool_]) -> NDArray[np.int64]:
    """emissions [T, S], skips [S]: whether a state may follow the one two before it -> the state of each
    frame, never decreasing, int64 [T]."""
    frames, states = emissions.shape
    scores = np.full(states, NEVER, np.float32)
    scores[:2] = emissions[0, :2]
    back = np.zeros((frames, states), np.int8)
    ways = np.full((3, states), NEVER, np.float32)
    for frame in range(1, frames):
        ways[0] = scores
        ways[1, 1:] = scores[:-1]
        ways[2, 2:] = np.where(skips[2:], scores[:-2], NEVER)
        back[frame] = ways.argmax(axis=0)
        scores = np.maximum(ways.max(axis=0) + emissions[frame], NEVER)
    state = states - 2 + int(np.argmax(scores[-2:]))
    path = np.empty(frames, np.int64)
    path[-1] = state
    for frame in range(frames - 1, 0, -1):
        state -= int(back[frame, state])
        path[frame - 1] = state
    return path
