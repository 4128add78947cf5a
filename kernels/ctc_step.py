"""One frame of a CTC prefix beam in plain MLX: the best K continuations, equal ones merged.

The semantics are those of NeMo's `beam_batch`: the best alignment of each prefix stands for it (maximum, not
sum), and two hypotheses are one when their collapsed tokens and their last frames' labels are equal. Knows
one frame's log-probabilities; does not know where a bonus comes from, nor what is written down of a step.
"""

from typing import NamedTuple

import mlx.core as mx

from kernels.prefix import Prefixes, empty_prefixes, extend, same_tokens
from kernels.topk import top_k


class CtcBeam(NamedTuple):
    """The live state, [B, K]. scores: float32, -inf = dead. last: int32, the last frame's label or blank, -1
    before the first frame."""

    scores: mx.array
    last: mx.array
    prefixes: Prefixes


class CtcStep(NamedTuple):
    """What a frame did, [B, K]. parents: int32, the slot continued. labels: int32, emitted, -1 where none
    was. gained: float32, the score before recombination."""

    parents: mx.array
    labels: mx.array
    gained: mx.array


def start_ctc(batch: int, beam: int, capacity: int) -> CtcBeam:
    """One empty hypothesis an utterance, with room for `capacity` tokens."""
    first = mx.where(mx.arange(beam) == 0, 0.0, -mx.inf).astype(mx.float32)
    return CtcBeam(
        scores=mx.broadcast_to(first, (batch, beam)),
        last=mx.full((batch, beam), -1, dtype=mx.int32),
        prefixes=empty_prefixes(batch, beam, capacity),
    )


def ctc_step(
    beam: CtcBeam,
    log_probs: mx.array,
    runs: mx.array,
    beta: float,
    threshold: float,
    bonus: mx.array | None = None,
) -> tuple[CtcBeam, CtcStep]:
    """Continue the beams of those utterances that run by one frame; the others wait.

    log_probs: float32 [B, W], blank last. runs: bool [B]. A continuation by the last label again, or by
    blank, scores s + log_prob; by another label ((s + log_prob) + beta) + bonus, bonus float32 [B, K, W - 1].
    The K best stay (of equal ones the lower slot's, and of a slot's the repeated label, then labels from the
    lowest, then blank) unless they are `threshold` or more behind the best; of equal hypotheses the best
    stays. -inf and NaN are no candidates.
    """
    batch, slots = beam.scores.shape
    width, blank = log_probs.shape[1], log_probs.shape[1] - 1
    table = beam.scores[..., None] + log_probs[:, None, :]
    fresh = table[..., :blank] + beta
    if bonus is not None:
        fresh = fresh + bonus
    speaks = (beam.last >= 0) & (beam.last < blank)
    repeated = mx.take_along_axis(table, mx.maximum(beam.last, 0)[..., None], axis=-1)
    repeated = mx.where(speaks[..., None], repeated, -mx.inf)
    fresh = mx.where(mx.arange(blank) == beam.last[..., None], -mx.inf, fresh)
    table = mx.concatenate([repeated, fresh, table[..., blank:]], axis=-1)

    kept, index = top_k(table.reshape(batch, -1), slots)
    runs = runs[:, None]
    alive = (index >= 0) & (kept > kept[:, :1] - threshold)
    parents = mx.where(alive, index // (width + 1), 0)
    place = mx.where(alive, index % (width + 1), width)
    label = mx.where(place == 0, mx.take_along_axis(beam.last, parents, axis=1), place - 1)
    labels = mx.where(runs & (place > 0) & (label != blank), label, -1)
    parents = mx.where(runs, parents, mx.arange(slots))
    last = mx.where(runs, label, beam.last)
    gained = mx.where(runs, mx.where(alive, kept, -mx.inf), beam.scores)
    prefixes = extend(beam.prefixes, parents, labels)
    same = same_tokens(prefixes) & (last[:, :, None] == last[:, None, :])
    scores = mx.where(runs, _keep_best(gained, same), beam.scores)
    return CtcBeam(scores, last, prefixes), CtcStep(parents, labels, gained)


def _keep_best(scores: mx.array, same: mx.array) -> mx.array:
    """Of each class of equal slots ([B, K, K]) the best stays (of equal scores the lowest), others die."""
    slots = mx.arange(scores.shape[-1])
    mine, others = scores[:, :, None], scores[:, None, :]
    better = (others > mine) | ((others == mine) & (slots[None, :] < slots[:, None]))
    return mx.where(mx.any(same & better, axis=-1), -mx.inf, scores)
