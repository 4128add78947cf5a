"""One expansion of a transducer beam: from the joint's logits to the best K continuations of each utterance.

Semantics: steps 1 to 4 of NeMo's `malsd_batch` (RNNT and TDT), without fusion. Knows logits, scores and the
rules for blank; does not know tokens already emitted, frames or states. This is the plain-MLX reference: a
kernel beside it must give the same answer.
"""

from typing import NamedTuple

import mlx.core as mx

from kernels.topk import top_k


class Expansion(NamedTuple):
    """The best K continuations of each utterance, best first; all arrays are [B, K] unless said otherwise.

    scores: float32, -inf in a dead slot. parents: int32, the slot continued, -1 in a dead slot.
    labels: int32, a label, blank, or -1 where a finished hypothesis is carried on (and in a dead slot).
    durations: int32, frames to advance. label_scores: float32, log-probability of the label among labels
    and blank. finite: bool [B], False when a live, unfinished hypothesis of the utterance had no finite
    normaliser.
    """

    scores: mx.array
    parents: mx.array
    labels: mx.array
    durations: mx.array
    label_scores: mx.array
    finite: mx.array


def expand(
    label_logits: mx.array,
    duration_logits: mx.array | None,
    durations: mx.array | None,
    scores: mx.array,
    finished: mx.array,
    forced: mx.array,
) -> Expansion:
    """Continue each of [B, K] hypotheses by each label (and duration), and keep the K best of each utterance.

    label_logits: [B, K, V + 1], blank last. duration_logits: [B, K, D] and durations: int32 [D] frames, or
    both None for RNNT, where a blank advances one frame and a label none. scores: float32 [B, K], -inf =
    dead slot. finished: bool [B, K], carried on unchanged. forced: bool [B, K], may only take blank, with
    the best duration.

    A continuation scores its hypothesis's score plus (label + duration log-probability); blank of duration 0
    advances 1 and keeps the score of duration 0. Order: score descending, then slot, then rank of the label
    in its hypothesis (equal logits: lowest label first), then duration. K may exceed V + 1.
    """
    batch, beam, width = label_logits.shape
    ranks, blank = min(beam, width), width - 1
    # A hypothesis with one continuation keeps one label and one duration; the rest of its table is -inf.
    bound = (finished | forced)[..., None]
    labels, label_lp, norm = _labels(label_logits.astype(mx.float32), ranks, finished, bound)
    table, choices = scores[..., None] + label_lp, 1
    sound = mx.isfinite(norm)
    if duration_logits is not None and durations is not None:
        duration_lp, duration_norm = _durations(duration_logits.astype(mx.float32), finished, bound)
        table = scores[..., None, None] + (label_lp[..., None] + duration_lp[:, :, None, :])
        choices = duration_lp.shape[-1]
        sound = sound & mx.isfinite(duration_norm)

    kept, index = top_k(table.reshape(batch, -1), beam)
    alive, at = index >= 0, mx.maximum(index, 0)
    place = at // choices
    label = mx.take_along_axis(labels.reshape(batch, -1), place, axis=1)
    step = (label == blank).astype(mx.int32)
    if durations is not None:
        step = mx.where(label < 0, 0, mx.maximum(mx.take(durations, at % choices), step))
    return Expansion(
        scores=kept,
        parents=mx.where(alive, place // ranks, -1),
        labels=mx.where(alive, label, -1),
        durations=mx.where(alive, step, 0),
        label_scores=mx.where(alive, mx.take_along_axis(label_lp.reshape(batch, -1), place, axis=1), 0.0),
        finite=mx.all(sound | finished | (scores == -mx.inf), axis=-1),
    )


def _labels(
    logits: mx.array, ranks: int, finished: mx.array, bound: mx.array
) -> tuple[mx.array, mx.array, mx.array]:
    """The best labels [B, K, R], their log-probabilities [B, K, R], and the normaliser [B, K].

    A bound hypothesis has one entry, the first: blank, or (-1, 0.0) where it is finished.
    """
    blank = logits.shape[-1] - 1
    norm = mx.logsumexp(logits, axis=-1)
    best, labels = top_k(logits, ranks)
    only_lp = mx.where(finished, 0.0, logits[..., blank] - norm)[..., None]
    only = mx.where(finished, -1, blank)[..., None]
    rest = mx.where(mx.arange(ranks) == 0, 0.0, -mx.inf)
    return (
        mx.where(bound, only, labels),
        mx.where(bound, only_lp + rest, best - norm[..., None]),
        norm,
    )


def _durations(logits: mx.array, finished: mx.array, bound: mx.array) -> tuple[mx.array, mx.array]:
    """The log-probabilities of the durations [B, K, D] and their normaliser [B, K].

    A bound hypothesis keeps its best one, and that at 0.0 where it is finished.
    """
    norm = mx.logsumexp(logits, axis=-1)
    best = mx.argmax(logits, axis=-1, keepdims=True)
    keeps = mx.arange(logits.shape[-1]) == best
    log_probs = mx.where(finished[..., None], 0.0, logits - norm[..., None])
    return mx.where(bound & ~keeps, -mx.inf, log_probs), norm
