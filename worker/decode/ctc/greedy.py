"""Greedy search of a CTC head: the best label of each frame, runs collapsed, blanks dropped."""

import numpy as np

from kernels.search.fixed_point import grid_sum
from spool.domain.recognition import Hypothesis
from worker.decode.backtrace import Path
from worker.models.heads.ctc import BestLabels


def ctc_greedy(
    best: BestLabels, lengths: np.ndarray, blank: int, *, fixed: bool = False
) -> list[list[Hypothesis]]:
    """The best path of each utterance.

    best: of [B, T] frames; lengths: [B] valid frames. A token's time is the first frame of
    its run and its confidence the probability there; durations are 0. The score sums the log-probabilities
    of all frames whose best label is not blank, as NeMo's does, in fixed point where `fixed`
    (`kernels.search.fixed_point`). An utterance with a NaN has an empty list.
    """
    labels, peaks = best.labels, best.log_probs
    found: list[list[Hypothesis]] = []
    for row, length in enumerate(lengths.tolist()):
        path = collapse(labels[row, :length], peaks[row, :length], blank)
        spoken = peaks[row, :length][labels[row, :length] != blank]
        score = grid_sum(spoken) if fixed else float(spoken.sum(dtype=np.float32))
        found.append([path.with_score(score)] if np.isfinite(peaks[row, :length]).all() else [])
    return found


def collapse(labels: np.ndarray, peaks: np.ndarray, blank: int, last: int = -1) -> Path:
    """The path through the best labels [T] and their log-probabilities: runs as one token, blanks dropped.
    last: the best label of the frame before."""
    fresh = np.flatnonzero((labels != blank) & (labels != np.concatenate([[last], labels])[:-1]))
    tokens, log_probs = tuple(labels[fresh].tolist()), tuple(peaks[fresh].tolist())
    return Path(tokens, tuple(fresh.tolist()), (0,) * len(tokens), log_probs)
