"""Prefix beam search over a CTC head that sums over all alignments (`kernels.search.ctc_prefix`, which
documents the semantics): one launch decodes every utterance, with language model and phrases."""

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.search.ctc_prefix import PrefixTrace, ctc_prefix_beam
from kernels.search.fixed_point import on_grid
from spool.domain.recognition import Hypothesis
from worker.decode.backtrace import follow_nodes
from worker.decode.fusion.fusion import Fusion


def ctc_prefix_search(
    log_probs: mx.array,
    lengths: np.ndarray,
    blank: int,
    beam: int,
    fusion: Fusion | None = None,
    beta: float = 0.0,
    *,
    fixed: bool = False,
) -> list[list[Hypothesis]]:
    """Up to `beam` hypotheses of each utterance, best score first.

    log_probs: [B, T, V + 1], natural logs, `blank` last; lengths: [B] valid frames; an utterance without
    frames has one empty hypothesis of score 0 (plus fusion's score of an empty sentence). A score is the
    log-probability of all alignments that the beam kept, plus `beta` for each token, plus fusion. A token's
    time is its frame in the best alignment, its duration 0, its confidence the probability there. An
    utterance with a non-finite frame has an empty list.
    """
    if blank != log_probs.shape[2] - 1:
        raise ValueError(f"blank is {blank}, but it must be the last of {log_probs.shape[2]} labels")
    if log_probs.shape[1] == 0:
        log_probs = mx.zeros((log_probs.shape[0], 1, log_probs.shape[2]))
    graphs = fusion.graphs() if fusion is not None else None
    trace = ctc_prefix_beam(log_probs, mx.array(lengths.astype(np.int32)), beam, beta, graphs, fixed=fixed)
    closing = mx.zeros(trace.ends.shape)
    if fusion is not None:
        states = tuple(mx.contiguous(trace.states[:, :, index]) for index in range(trace.states.shape[2]))
        closing = fusion.closing(states)
        closing = on_grid(closing) if fixed else closing
    mx.eval(trace, closing)
    return _hypotheses(trace, np.array(closing, np.float64))


def _hypotheses(trace: PrefixTrace, closing: NDArray[np.float64]) -> list[list[Hypothesis]]:
    beam = trace.ends.shape[1]
    moved = np.array(trace.base, np.float64).sum(1) + np.array(trace.added, np.float64).sum(1)
    scores = np.array(trace.ends, np.float64) + moved[:, None] + closing
    labels, probabilities = (
        np.array(each).reshape(len(scores), -1) for each in (trace.labels, trace.emissions)
    )
    tokens = follow_nodes(np.array(trace.end_nodes), np.array(trace.nodes))
    times = follow_nodes(np.array(trace.end_times), np.array(trace.before))
    finite = np.array(trace.finite)
    utterances: list[list[Hypothesis]] = []
    for row in range(len(scores)):
        kept = []
        for slot in np.flatnonzero(scores[row] > -np.inf).tolist():
            spoken = tokens[row, slot][tokens[row, slot] >= 0]
            when = times[row, slot][times[row, slot] >= 0]
            kept.append(
                Hypothesis(
                    tokens=tuple(labels[row, spoken].tolist()),
                    score=float(scores[row, slot]),
                    times=tuple((when // beam).tolist()),
                    durations=(0,) * len(spoken),
                    confidences=tuple(np.exp(np.minimum(probabilities[row, when], 0)).tolist()),
                )
            )
        kept.sort(key=lambda hypothesis: -hypothesis.score)
        utterances.append(kept if finite[row] else [])
    return utterances
