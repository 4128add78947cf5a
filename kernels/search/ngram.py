"""Weighted graphs over labels with back-off, walked by all hypotheses of a batch at once.

A state has arcs for some labels and one fallback for the rest, as in an n-gram model ("NGPU-LM", Bataev et
al., 2025) and in an Aho-Corasick tree. Knows states, arcs and weights; does not know what they stand for.
`label_scores` and `advance` run as kernels where available, otherwise as the plain-MLX references beside
them; the two differ only in the rounding of one product.
"""

from typing import NamedTuple

import mlx.core as mx

from kernels.runtime.device import launch_rows
from kernels.runtime.source import read_kernel

LABEL_SCORES = read_kernel(
    "search/graph_look", "states which alphas count first fallback penalty labels weights roots before", "y"
)
ADVANCE = read_kernel(
    "search/graph_walk", "states which parents emitted count first fallback labels targets root_targets", "y"
)


class Arcs(NamedTuple):
    """G graphs side by side, S states and M arcs in all.

    first, arc_counts: int32 [S], a state's arcs, sorted by label. fallback: int32 [S], negative at a root.
    penalty: float32 [S], added when falling back. labels, targets: int32 [M]. weights: float32 [M]. roots:
    float32 [G, V], each label's score at each graph's root, and root_targets: int32 [G, V], the state it
    leads to; the arcs of roots are not read. Over all graphs: `depth`, the number of states on the longest
    chain of fallbacks to a root, and `width`, the most arcs of a state other than a root.
    """

    first: mx.array
    arc_counts: mx.array
    fallback: mx.array
    penalty: mx.array
    labels: mx.array
    weights: mx.array
    targets: mx.array
    roots: mx.array
    root_targets: mx.array
    depth: int
    width: int


def label_scores_reference(
    arcs: Arcs, states: mx.array, which: mx.array, alphas: mx.array, before: mx.array | None = None
) -> mx.array:
    """As `label_scores`, in plain MLX."""
    chain, debts = [states], [mx.zeros(states.shape)]
    for _ in range(arcs.depth - 1):
        current, back = chain[-1], mx.take(arcs.fallback, chain[-1])
        debts.append(debts[-1] + mx.where(back < 0, 0.0, mx.take(arcs.penalty, current)))
        chain.append(mx.where(back < 0, current, back))
    costs = mx.take(arcs.roots, which, axis=0)[:, None] + debts[-1][..., None]
    vocabulary = costs.shape[-1]
    costs = mx.pad(costs, [(0, 0), (0, 0), (0, 1)])  # one column that absorbs unused arc slots
    # The root's scores first; longer contexts overwrite them.
    for state, debt in zip(chain[-2::-1], debts[-2::-1], strict=True):
        real, at = _arcs_of(arcs, state)
        columns = mx.where(real, mx.take(arcs.labels, at), vocabulary)
        costs = mx.put_along_axis(costs, columns, mx.take(arcs.weights, at) + debt[..., None], axis=-1)
    bonus = costs[..., :vocabulary] * alphas[:, None, None]
    return bonus if before is None else bonus + before


def _arcs_of(arcs: Arcs, state: mx.array) -> tuple[mx.array, mx.array]:
    """For each state of [B, K], which of `width` slots hold an arc, and the arcs; a root has none."""
    steps = mx.arange(max(arcs.width, 1))
    count = mx.where(mx.take(arcs.fallback, state) < 0, 0, mx.take(arcs.arc_counts, state))
    real = steps < count[..., None]
    return real, mx.where(real, mx.take(arcs.first, state)[..., None] + steps, 0)


def label_scores(
    arcs: Arcs, states: mx.array, which: mx.array, alphas: mx.array, before: mx.array | None = None
) -> mx.array:
    """The score of each label in int32 [B, K] states, times its utterance's weight: float32 [B, K, V].

    which: int32 [B], the graph of each utterance. alphas: float32 [B]. before: float32 [B, K, V], added.
    """
    batch, beam = states.shape
    outputs = launch_rows(
        LABEL_SCORES,
        [
            states,
            which,
            alphas,
            arcs.arc_counts,
            arcs.first,
            arcs.fallback,
            arcs.penalty,
            arcs.labels,
            arcs.weights,
            arcs.roots,
            mx.zeros((8,)) if before is None else before,
        ],
        [((batch, beam, arcs.roots.shape[1]), mx.float32)],
        rows=batch * beam,
        template=(("ADDS", before is not None),),
    )
    return label_scores_reference(arcs, states, which, alphas, before) if outputs is None else outputs[0]


def advance_reference(
    arcs: Arcs, states: mx.array, which: mx.array, parents: mx.array, emitted: mx.array
) -> mx.array:
    """As `advance`, in plain MLX."""
    state = mx.take_along_axis(states, mx.maximum(parents, 0), axis=1)
    label = mx.maximum(emitted, 0)
    open_, reached = emitted >= 0, state
    for _ in range(arcs.depth):
        is_root = mx.take(arcs.fallback, state) < 0
        real, at = _arcs_of(arcs, state)
        hit = real & (mx.take(arcs.labels, at) == label[..., None])
        there = mx.sum(mx.where(hit, mx.take(arcs.targets, at), 0), axis=-1)
        by_root = mx.take_along_axis(mx.take(arcs.root_targets, which, axis=0), label, axis=1)
        ends = is_root | mx.any(hit, axis=-1)
        reached = mx.where(open_ & ends, mx.where(is_root, by_root, there), reached)
        open_ = open_ & ~ends
        state = mx.where(is_root, state, mx.take(arcs.fallback, state))
    return reached.astype(mx.int32)


def advance(arcs: Arcs, states: mx.array, which: mx.array, parents: mx.array, emitted: mx.array) -> mx.array:
    """The states [B, K] after each hypothesis k has become parents[k] (slot 0 where negative) followed by the
    label emitted[k] (none where negative); all int32."""
    outputs = launch_rows(
        ADVANCE,
        [
            states,
            which,
            parents,
            emitted,
            arcs.arc_counts,
            arcs.first,
            arcs.fallback,
            arcs.labels,
            arcs.targets,
            arcs.root_targets,
        ],
        [(states.shape, mx.int32)],
        rows=states.shape[0],
    )
    return advance_reference(arcs, states, which, parents, emitted) if outputs is None else outputs[0]
