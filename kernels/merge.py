"""Recombination of equal hypotheses: their probabilities are added and one of them goes on.

Knows scores and which slots are equal, not why they are. Step 6 of `malsd_batch`.
"""

import mlx.core as mx


def merge(scores: mx.array, same: mx.array) -> mx.array:
    """Add the probability of each class of equal slots onto its best slot; the others die.

    scores: float32 [B, K], natural logs, -inf = dead. same: bool [B, K, K], an equivalence (what it says of
    dead slots is ignored). Returns float32 [B, K]: logsumexp of the class at its best-scoring slot (equal
    scores: lowest slot), -inf elsewhere. The score of a slot that is alone in its class comes back bit for
    bit.
    """
    beam = scores.shape[-1]
    slots = mx.arange(beam)
    alive = scores > -mx.inf
    linked = same & alive[:, None, :]
    mine, others = scores[:, :, None], scores[:, None, :]
    better = (others > mine) | ((others == mine) & (slots[None, :] < slots[:, None]))
    winner = alive & ~mx.any(linked & better, axis=-1)
    total = mx.logsumexp(mx.where(linked, others, -mx.inf), axis=-1)
    crowd = mx.sum(linked, axis=-1) > 1
    return mx.where(winner, mx.where(crowd, total, scores), -mx.inf)
