"""One expansion of a transducer beam with fusion: steps 1 to 4 of `malsd_batch`, pruning `late`.

As `kernels.expand.expand`, but labels are ranked by the fused scores that it is given, which are no
probabilities any more. Knows scores; does not know where the fused ones come from.
"""

from collections.abc import Callable

import mlx.core as mx

from kernels.expand import Expansion
from kernels.topk import top_k


def expand_fused(
    label_logits: mx.array,
    duration_logits: mx.array | None,
    durations: mx.array | None,
    scores: mx.array,
    finished: mx.array,
    forced: mx.array,
    fuse: Callable[[mx.array], mx.array],
) -> Expansion:
    """Continue [B, K] hypotheses and keep the best K of each utterance: as `kernels.expand.expand`.

    `fuse` turns log-probabilities [B, K, V + 1] into fused scores of the same shape. A forced blank has its
    fused score. `label_scores` stay the acoustic log-probabilities.
    """
    batch, beam, width = label_logits.shape
    ranks, blank = min(beam, width), width - 1
    logits = label_logits.astype(mx.float32)
    norm = mx.logsumexp(logits, axis=-1, keepdims=True)
    acoustic = logits - norm
    fused = fuse(acoustic)
    # A hypothesis with one continuation keeps one label and one duration; the rest of its table is -inf.
    bound = (finished | forced)[..., None]
    best, labels = top_k(fused, ranks)
    only = mx.where(finished, 0.0, fused[..., blank])[..., None]
    gains = mx.where(bound, only + mx.where(mx.arange(ranks) == 0, 0.0, -mx.inf), best)
    labels = mx.where(bound, mx.where(finished, -1, blank)[..., None], labels)
    sound = mx.isfinite(norm[..., 0])
    table, choices = scores[..., None] + gains, 1
    if duration_logits is not None and durations is not None:
        spread = duration_logits.astype(mx.float32)
        duration_norm = mx.logsumexp(spread, axis=-1, keepdims=True)
        keeps = mx.arange(spread.shape[-1]) == mx.argmax(spread, axis=-1, keepdims=True)
        waits = mx.where(finished[..., None], 0.0, spread - duration_norm)
        waits = mx.where(bound & ~keeps, -mx.inf, waits)
        table = scores[..., None, None] + (gains[..., None] + waits[:, :, None, :])
        choices = spread.shape[-1]
        sound = sound & mx.isfinite(duration_norm[..., 0])

    kept, index = top_k(table.reshape(batch, -1), beam)
    alive, at = index >= 0, mx.maximum(index, 0)
    place = at // choices
    parents = place // ranks
    label = mx.take_along_axis(labels.reshape(batch, -1), place, axis=1)
    step = (label == blank).astype(mx.int32)
    if durations is not None:
        step = mx.where(label < 0, 0, mx.maximum(mx.take(durations, at % choices), step))
    said = mx.take_along_axis(acoustic.reshape(batch, -1), parents * width + mx.maximum(label, 0), axis=1)
    return Expansion(
        scores=kept,
        parents=mx.where(alive, parents, -1),
        labels=mx.where(alive, label, -1),
        durations=mx.where(alive, step, 0),
        label_scores=mx.where(alive & (label >= 0), said, 0.0),
        finite=mx.all(sound | finished | (scores == -mx.inf), axis=-1),
    )
