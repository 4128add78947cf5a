"""A frame-synchronous transducer beam with at most one label per frame, as WeNet's `PrefixBeamSearch`.

Each hypothesis is extended by the K best labels of the mixed probabilities of transducer and CTC head; blank
keeps a hypothesis unchanged, equal ones are merged by adding their probabilities, and the K best stay. In
`worker.decode.transducer.beam` a frame may have several labels.
"""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.search.topk import top_k
from spool.domain.recognition import Hypothesis
from worker.models.heads.transducer import Transducer


@dataclass(frozen=True, slots=True)
class _Trace:
    """One hypothesis: tokens with their frames and probabilities, and the row of its prediction."""

    tokens: tuple[int, ...]
    times: tuple[int, ...]
    confidences: tuple[float, ...]
    score: float
    row: int
    label: int = -1


def frame_beam_search(
    transducer: Transducer,
    frames: mx.array,
    lengths: NDArray[np.int32],
    beam: int,
    ctc_log_probs: mx.array | None,
    ctc_weight: float,
) -> list[list[Hypothesis]]:
    """Up to `beam` hypotheses of each utterance of frames [B, T, d], best first.

    ctc_log_probs: [B, T, V + 1], mixed in with `ctc_weight`; the transducer's weight is 1 - ctc_weight. An
    utterance without frames has one empty hypothesis of score 0; one with non-finite logits an empty list.
    """
    batch = len(lengths)
    traces = [[_Trace((), (), (), 0.0, row * beam)] for row in range(batch)]
    has_nan = np.zeros(batch, bool)
    projected = transducer.project_encoder(frames)
    output, state = transducer.start(batch * beam)
    for frame in range(int(lengths.max(initial=0))):
        encoder_frames = mx.repeat(projected[:, frame], beam, axis=0)
        logits = transducer.joint_logits(encoder_frames, output).astype(mx.float32)
        log_probs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        if ctc_log_probs is not None and ctc_weight > 0:
            ctc_probs = mx.repeat(mx.exp(ctc_log_probs[:, frame].astype(mx.float32)), beam, axis=0)
            log_probs = mx.log((1 - ctc_weight) * mx.exp(log_probs) + ctc_weight * ctc_probs)
        best, labels = top_k(log_probs, beam)
        mx.eval(best, labels)
        values, top_labels = np.array(best, np.float64), np.array(labels)
        for row in np.flatnonzero((frame < lengths) & ~has_nan).tolist():
            if not np.isfinite(values[[trace.row for trace in traces[row]], 0]).all():
                has_nan[row] = True
                continue
            traces[row] = _next(traces[row], values, top_labels, frame, transducer.blank)
        parents = np.arange(batch * beam)
        tokens = np.full(batch * beam, -1)
        for row, kept in enumerate(traces):
            for place, trace in enumerate(kept):
                parents[row * beam + place], tokens[row * beam + place] = trace.row, trace.label
                kept[place] = _at(trace, row * beam + place)
        of, spoken = mx.array(parents), mx.array(np.maximum(tokens, 0))
        stepped, reached = transducer.step(spoken, state, of)
        grows = mx.array(tokens >= 0)
        output = mx.where(grows[:, None], stepped, output[of])
        state = reached.where(grows, state.take(of))
    return [
        []
        if has_nan[row]
        else [
            Hypothesis(each.tokens, each.score, each.times, (0,) * len(each.tokens), each.confidences)
            for each in traces[row]
        ]
        for row in range(batch)
    ]


def _next(
    traces: list[_Trace], values: NDArray[np.float64], offered: NDArray[np.int32], frame: int, blank: int
) -> list[_Trace]:
    """The next beam of one utterance, before predictions move: `row` and `label` say what each is made of."""
    beam = values.shape[1]
    merged: dict[tuple[int, ...], _Trace] = {}
    for trace in traces:
        for value, label in zip(values[trace.row].tolist(), offered[trace.row].tolist(), strict=True):
            if label < 0:
                continue
            score = trace.score + value
            if label == blank:
                grown = _Trace(trace.tokens, trace.times, trace.confidences, score, trace.row)
            else:
                confidences = (*trace.confidences, min(1.0, float(np.exp(value))))
                tokens, times = (*trace.tokens, label), (*trace.times, frame)
                grown = _Trace(tokens, times, confidences, score, trace.row, label)
            known = merged.get(grown.tokens)
            if known is None:
                merged[grown.tokens] = grown
            else:
                both = float(np.logaddexp(known.score, score))
                merged[grown.tokens] = _Trace(
                    known.tokens, known.times, known.confidences, both, known.row, known.label
                )
    return sorted(merged.values(), key=lambda trace: -trace.score)[:beam]


def _at(trace: _Trace, row: int) -> _Trace:
    return _Trace(trace.tokens, trace.times, trace.confidences, trace.score, row)
