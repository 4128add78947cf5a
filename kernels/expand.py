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
    ranks = min(beam, width)
    if duration_logits is None or durations is None:
        duration_logits, durations = mx.zeros((batch, beam, 1)), mx.zeros((1,), dtype=mx.int32)
    logits = label_logits.astype(mx.float32)
    norm = mx.logsumexp(logits, axis=-1)
    best, labels = top_k(logits, ranks)
    label_lp = best - norm[..., None]
    spread = duration_logits.astype(mx.float32)
    duration_norm = mx.logsumexp(spread, axis=-1)
    duration_lp = spread - duration_norm[..., None]

    blank = width - 1
    grid = (batch, beam, ranks, duration_lp.shape[-1])
    candidates = scores[..., None, None] + (label_lp[..., None] + duration_lp[:, :, None, :])
    label_of = mx.broadcast_to(labels[..., None], grid)
    lp_of = mx.broadcast_to(label_lp[..., None], grid)
    frames_of = mx.where(label_of == blank, mx.maximum(durations, 1), durations)

    first = mx.zeros(grid[2:], dtype=mx.bool_)
    first[0, 0] = True
    blank_lp = logits[..., blank] - norm
    forced_score = scores + (blank_lp + duration_lp.max(axis=-1))
    forced_frames = mx.maximum(durations[mx.argmax(duration_lp, axis=-1)], 1)
    finished, forced = finished[..., None, None], forced[..., None, None]
    only = mx.where(finished, scores[..., None, None], forced_score[..., None, None])
    candidates = mx.where(finished | forced, mx.where(first, only, -mx.inf), candidates)
    label_of = mx.where(finished, -1, mx.where(forced, blank, label_of))
    lp_of = mx.where(forced, blank_lp[..., None, None], lp_of)
    frames_of = mx.where(finished, 0, mx.where(forced, forced_frames[..., None, None], frames_of))

    kept, index = top_k(candidates.reshape(batch, -1), beam)
    alive = index >= 0
    at = mx.maximum(index, 0)

    def pick(values: mx.array, dead: float) -> mx.array:
        chosen = mx.take_along_axis(values.reshape(batch, -1), at, axis=1)
        return mx.where(alive, chosen, mx.array(dead, dtype=values.dtype))

    running = (scores > -mx.inf) & ~finished[..., 0, 0]
    sound = mx.isfinite(norm) & mx.isfinite(duration_norm)
    return Expansion(
        scores=kept,
        parents=mx.where(alive, at // (grid[2] * grid[3]), -1),
        labels=pick(label_of, -1),
        durations=pick(frames_of, 0),
        label_scores=pick(lp_of, 0.0),
        finite=mx.all(sound | ~running, axis=-1),
    )
