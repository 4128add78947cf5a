"""Greedy search of a CTC head: the best label of each frame, runs collapsed, blanks dropped."""

import mlx.core as mx
import numpy as np

from kernels.search.fixed_point import grid_sum
from spool.domain.recognition import Hypothesis


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
    return [
        _collapse(labels[row, :length], peaks[row, :length], kept[row, :length], blank, fixed)
        for row, length in enumerate(lengths.tolist())
    ]


def _collapse(
    labels: np.ndarray, peaks: np.ndarray, finite: np.ndarray, blank: int, fixed: bool
) -> list[Hypothesis]:
    """The hypothesis of one utterance's frames, [T] each; none if a frame is not finite."""
    if not finite.all():
        return []
    spoken = labels != blank
    fresh = spoken & (labels != np.concatenate([[-1], labels[:-1]])) if len(labels) else spoken
    times = np.flatnonzero(fresh)
    return [
        Hypothesis(
            tokens=tuple(labels[times].tolist()),
            score=grid_sum(peaks[spoken]) if fixed else float(peaks[spoken].sum(dtype=np.float32)),
            times=tuple(times.tolist()),
            durations=(0,) * len(times),
            confidences=tuple(np.exp(np.minimum(peaks[times], 0)).tolist()),
        )
    ]
