"""A transducer's log-likelihood of a label sequence: the sum over all of its alignments.

The forward algorithm of "Sequence Transduction with Recurrent Neural Networks" (Graves, 2012), section 2.4,
over the prefix tree of an utterance's hypotheses, so that common prefixes are computed once.
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.models.heads.transducer import Transducer

Labels = tuple[int, ...]


def log_likelihoods(
    transducer: Transducer, frames: mx.array, hypotheses: Sequence[Labels]
) -> NDArray[np.float64]:
    """The natural-log probability of each label sequence, [N], given one utterance's frames [T, d]; all are 0
    without frames. `transducer` is an RNN-T, without durations."""
    if transducer.durations is not None:
        raise ValueError("the likelihood of a transducer with durations is not implemented")
    count, blank = len(frames), transducer.blank
    if count == 0:
        return np.zeros(len(hypotheses))
    encoder = transducer.project_encoder(frames)
    output, state = transducer.start(1)
    sums: dict[Labels, float] = {}
    # The log-probability of having emitted the prefix on reaching frame t, before its blank.
    level: dict[Labels, NDArray[np.float64]] = {(): np.full(count, -np.inf)}
    level[()][0] = 0.0
    while level:
        rows = {prefix: row for row, prefix in enumerate(level)}
        extensions = sorted(
            {each[: len(prefix) + 1] for prefix in rows for each in _beyond(prefix, hypotheses)}
        )
        entered: dict[Labels, NDArray[np.float64]] = {}
        for prefix, row in rows.items():
            children = [each for each in extensions if each[:-1] == prefix]
            columns = mx.array([blank, *(each[-1] for each in children)])
            logits = transducer.joint_logits(encoder, output[row]).astype(mx.float32)
            log_probs = mx.take(logits, columns, axis=-1) - mx.logsumexp(logits, axis=-1, keepdims=True)
            logs = np.array(log_probs, np.float64)
            reached = _along(level[prefix], logs[:, 0])
            sums[prefix] = float(reached[-1] + logs[-1, 0])
            entered |= {each: reached + logs[:, at] for at, each in enumerate(children, 1)}
        if extensions:
            parents = mx.array([rows[each[:-1]] for each in extensions])
            output, state = transducer.step(mx.array([each[-1] for each in extensions]), state, parents)
        level = {each: entered[each] for each in extensions}
    return np.array([sums[tuple(each)] for each in hypotheses])


def _beyond(prefix: Labels, hypotheses: Sequence[Labels]) -> list[Labels]:
    size = len(prefix)
    return [tuple(each) for each in hypotheses if len(each) > size and tuple(each[:size]) == prefix]


def _along(entered: NDArray[np.float64], blanks: NDArray[np.float64]) -> NDArray[np.float64]:
    """The forward variable of each frame: paths that enter there, and those a blank brings from before."""
    left = np.concatenate([[0.0], np.cumsum(blanks)[:-1]])
    reached: NDArray[np.float64] = np.logaddexp.accumulate(entered - left) + left
    return reached
