"""Weighted graphs over labels with back-off, walked by all hypotheses of a batch at once.

A state has arcs for some labels and one fallback for the rest, as in an n-gram model ("NGPU-LM", Bataev et
al., 2025) and in an Aho-Corasick tree. Knows states, arcs and weights; does not know what they stand for.
`look` and `walk` run as kernels where those run, else as the plain-MLX references beside them: equal but for
the rounding of one product.
"""

from typing import NamedTuple

import mlx.core as mx

from kernels.runtime.device import launch_rows
from kernels.runtime.source import read_kernel

LOOK = read_kernel(
    "search/graph_look", "states which alphas count first fallback penalty labels weights roots before", "y"
)
WALK = read_kernel(
    "search/graph_walk", "states which parents emitted count first fallback labels targets root_targets", "y"
)


class Arcs(NamedTuple):
    """G graphs side by side, S states and M arcs in all.

    first, many: int32 [S], a state's arcs, in the order of their labels. fallback: int32 [S], negative at
    a root. penalty: float32 [S], added when falling back. labels, targets: int32 [M]. weights: float32 [M].
    roots: float32 [G, V], what each graph's root gives a label, and root_targets: int32 [G, V], where that
    leads; the arcs of roots are not read. Of all graphs: `depth`, the states on the longest way to a root,
    both counted, and `width`, the most arcs of a state that is no root.
    """

    first: mx.array
    many: mx.array
    fallback: mx.array
    penalty: mx.array
    labels: mx.array
    weights: mx.array
    targets: mx.array
    roots: mx.array
    root_targets: mx.array
    depth: int
    width: int


def look_reference(
    arcs: Arcs, states: mx.array, which: mx.array, alphas: mx.array, before: mx.array | None = None
) -> mx.array:
    """As `look`, in plain MLX."""
    chain, debts = [states], [mx.zeros(states.shape)]
    for _ in range(arcs.depth - 1):
        current, back = chain[-1], mx.take(arcs.fallback, chain[-1])
        debts.append(debts[-1] + mx.where(back < 0, 0.0, mx.take(arcs.penalty, current)))
        chain.append(mx.where(back < 0, current, back))
    costs = mx.take(arcs.roots, which, axis=0)[:, None] + debts[-1][..., None]
    vocabulary = costs.shape[-1]
    costs = mx.pad(costs, [(0, 0), (0, 0), (0, 1)])  # a column for what is no arc
    # The root first; what a longer context knows better is written over it.
    for state, debt in zip(chain[-2::-1], debts[-2::-1], strict=True):
        real, at = _arcs_of(arcs, state)
        columns = mx.where(real, mx.take(arcs.labels, at), vocabulary)
        costs = mx.put_along_axis(costs, columns, mx.take(arcs.weights, at) + debt[..., None], axis=-1)
    bonus = costs[..., :vocabulary] * alphas[:, None, None]
    return bonus if before is None else bonus + before


def _arcs_of(arcs: Arcs, state: mx.array) -> tuple[mx.array, mx.array]:
    """Of each state of [B, K]: which of `width` places hold an arc, and the arcs; none where it is a root."""
    steps = mx.arange(max(arcs.width, 1))
    count = mx.where(mx.take(arcs.fallback, state) < 0, 0, mx.take(arcs.many, state))
    real = steps < count[..., None]
    return real, mx.where(real, mx.take(arcs.first, state)[..., None] + steps, 0)


def look(
    arcs: Arcs, states: mx.array, which: mx.array, alphas: mx.array, before: mx.array | None = None
) -> mx.array:
    """What each label costs in int32 [B, K] states, times its utterance's weight, float32 [B, K, V].

    which: int32 [B], the graph of each utterance. alphas: float32 [B]. before: float32 [B, K, V], added.
    """
    batch, beam = states.shape
    outputs = launch_rows(
        LOOK,
        [
            states,
            which,
            alphas,
            arcs.many,
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
    return look_reference(arcs, states, which, alphas, before) if outputs is None else outputs[0]


def walk_reference(
    arcs: Arcs, states: mx.array, which: mx.array, parents: mx.array, emitted: mx.array
) -> mx.array:
    """As `walk`, in plain MLX."""
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


def walk(arcs: Arcs, states: mx.array, which: mx.array, parents: mx.array, emitted: mx.array) -> mx.array:
    """The states [B, K] after each hypothesis k became parents[k] (a negative one reads slot 0) followed by
    the label emitted[k], a negative one being none; int32 all."""
    outputs = launch_rows(
        WALK,
        [
            states,
            which,
            parents,
            emitted,
            arcs.many,
            arcs.first,
            arcs.fallback,
            arcs.labels,
            arcs.targets,
            arcs.root_targets,
        ],
        [(states.shape, mx.int32)],
        rows=states.shape[0],
    )
    return walk_reference(arcs, states, which, parents, emitted) if outputs is None else outputs[0]
