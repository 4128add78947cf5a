"""Greedy search of a CTC head: the best label of each frame, runs collapsed, blanks dropped."""

import mlx.core as mx
import numpy as np

from kernels.search.fixed_point import grid_sum
from spool.domain.recognition import Hypothesis
from worker.decode.backtrace import Path


def ctc_greedy(
    log_probs: mx.array, lengths: np.ndarray, blank: int, *, fixed: bool = False
) -> list[list[Hypothesis]]:
    """The best path of each utterance.

    log_probs: [B, T, V + 1], natural logs; lengths: [B] valid frames. A token's time is the first frame of
    its run and its confidence the probability there; durations are 0. The score sums the log-probabilities
    of all frames whose best label is not blank, as NeMo's does, in fixed point where `fixed`
    (`kernels.search.fixed_point`). An utterance with a NaN has an empty list.
    """
    best = mx.argmax(log_probs, axis=-1)
    peak = mx.take_along_axis(log_probs, best[..., None], axis=-1)[..., 0].astype(mx.float32)
    finite = mx.isfinite(peak) & ~mx.any(mx.isnan(log_probs), axis=-1)
    mx.eval(best, peak, finite)
    labels, peaks, kept = np.array(best).astype(np.int64), np.array(peak), np.array(finite)
    found: list[list[Hypothesis]] = []
    for row, length in enumerate(lengths.tolist()):
        path = collapse(labels[row, :length], peaks[row, :length], blank)
        spoken = peaks[row, :length][labels[row, :length] != blank]
        score = grid_sum(spoken) if fixed else float(spoken.sum(dtype=np.float32))
        found.append([path.with_score(score)] if kept[row, :length].all() else [])
    return found


def collapse(labels: np.ndarray, peaks: np.ndarray, blank: int, last: int = -1) -> Path:
    """The path through the best labels [T] and their log-probabilities: runs as one token, blanks dropped.
    last: the best label of the frame before."""
    fresh = np.flatnonzero((labels != blank) & (labels != np.concatenate([[last], labels])[:-1]))
    tokens, log_probs = tuple(labels[fresh].tolist()), tuple(peaks[fresh].tolist())
    return Path(tokens, tuple(fresh.tolist()), (0,) * len(tokens), log_probs)
