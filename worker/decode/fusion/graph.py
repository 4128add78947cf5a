"""Weighted graphs over tokens with back-off, as arrays, followed by all hypotheses of a batch at once.

Binds graphs to utterances; `kernels.search.ngram` follows them, `ngram` and `phrases` build them, and
`fusion` adds them to a search's scores.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.search.ctc_prefix import Graphs
from kernels.search.ngram import Arcs, advance, label_scores

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Graph:
    """One graph of S states and M arcs; state 0 is the root, and an utterance begins at `start`.

    first, count: int32 [S], a state's arcs, sorted by label. fallback: int32 [S], -1 at the root. penalty:
    float32 [S], added when falling back. ends: float32 [S], added when the utterance ends there. labels,
    weights, targets: [M]. base: float32 [V], the root's score of tokens without an arc; base_targets: int32
    [V], the states they lead to.
    """

    first: Ints
    count: Ints
    fallback: Ints
    penalty: Floats
    ends: Floats
    labels: Ints
    weights: Floats
    targets: Ints
    base: Floats
    base_targets: Ints
    start: int = 0

    def after(self, tokens: Sequence[int]) -> int:
        """The state of an utterance after these tokens."""
        return self.read(tokens, self.start)[1]

    def read(self, tokens: Sequence[int], state: int) -> tuple[float, int]:
        """The score of the tokens from a state on, without an end, and the state after them."""
        added = 0.0
        for token in tokens:
            while (at := self._arc(state, token)) < 0 and state > 0:
                added += float(self.penalty[state])
                state = int(self.fallback[state])
            added += float(self.weights[at] if at >= 0 else self.base[token])
            state = int(self.targets[at] if at >= 0 else self.base_targets[token])
        return added, state

    def _arc(self, state: int, token: int) -> int:
        first = int(self.first[state])
        arcs = self.labels[first : first + int(self.count[state])]
        at = int(np.searchsorted(arcs, token))
        return first + at if at < len(arcs) and arcs[at] == token else -1

    def root(self) -> tuple[Floats, Ints]:
        """The root's score of each token and the state it leads to: the base overwritten by the arcs."""
        costs, targets = self.base.copy(), self.base_targets.copy()
        arcs = slice(int(self.first[0]), int(self.first[0]) + int(self.count[0]))
        costs[self.labels[arcs]] = self.weights[arcs]
        targets[self.labels[arcs]] = self.targets[arcs]
        return costs, targets

    @cached_property
    def depth(self) -> int:
        """The number of states on the longest chain of fallbacks to the root."""
        steps, reached = 1, np.arange(len(self.fallback))
        while len(reached := reached[self.fallback[reached] >= 0]):
            reached = np.unique(self.fallback[reached])
            steps += 1
        return steps

    @cached_property
    def width(self) -> int:
        """Most arcs of a state that is not the root."""
        return int(self.count[1:].max(initial=0))


@lru_cache(maxsize=8)
def _join(graphs: tuple[Graph, ...]) -> tuple[Arcs, mx.array, mx.array]:
    """The graphs side by side, with states and arcs renumbered; the first state of each, int32 [G]; the score
    of ending in each state, float32 [S]. Cached, since batches tend to use the same graphs."""
    states = np.cumsum([0, *(len(graph.first) for graph in graphs)])
    arcs = np.cumsum([0, *(len(graph.labels) for graph in graphs)])

    def join(name: str, shifts: NDArray[np.int64] | None = None) -> mx.array:
        parts = [getattr(graph, name) for graph in graphs]
        if shifts is not None:
            moved = zip(parts, shifts, strict=False)
            parts = [np.where(part < 0, part, part + shift).astype(np.int32) for part, shift in moved]
        values = np.concatenate(parts)
        # An empty array cannot be indexed, not even by rows that are masked afterwards.
        return mx.array(values if len(values) else np.zeros(1, values.dtype))

    roots = [graph.root() for graph in graphs]
    merged = Arcs(
        first=join("first", arcs),
        arc_counts=join("count"),
        fallback=join("fallback", states),
        penalty=join("penalty"),
        labels=join("labels"),
        weights=join("weights"),
        targets=join("targets", states),
        roots=mx.array(np.stack([costs for costs, _ in roots])),
        root_targets=mx.array(
            np.stack([targets + shift for (_, targets), shift in zip(roots, states, strict=False)]), mx.int32
        ),
        depth=max(graph.depth for graph in graphs),
        width=max(graph.width for graph in graphs),
    )
    return merged, mx.array(states[:-1].astype(np.int32)), join("ends")


class BoundGraph:
    """Graphs bound to a batch: utterance b follows graphs[which[b]] and begins in the state after its context
    (the tokens before it; none by default)."""

    def __init__(
        self, graphs: Sequence[Graph], which: Sequence[int], contexts: Sequence[Sequence[int]] | None = None
    ) -> None:
        self._graphs, self._indices = tuple(graphs), np.array(which, np.int32)
        self._arcs, shifts, self._ends = _join(self._graphs)
        self._which = mx.array(self._indices)
        tails = [()] * len(which) if contexts is None else contexts
        reached = [graphs[index].after(tail) for index, tail in zip(which, tails, strict=True)]
        self._reached = mx.array(reached, mx.int32)
        self._starts = mx.take(shifts, self._which) + self._reached

    def select(self, utterances: Sequence[int]) -> "BoundGraph":
        """The binding of these utterances only; their states remain valid."""
        chosen = copy(self)
        rows = mx.array(list(utterances), mx.int32)
        chosen._indices = self._indices[list(utterances)]
        chosen._which, chosen._reached, chosen._starts = (
            each[rows] for each in (self._which, self._reached, self._starts)
        )
        return chosen

    def start(self, beam: int) -> mx.array:
        """The first state of each of [B, beam] hypotheses, int32."""
        return mx.repeat(self._starts[:, None], beam, axis=1)

    def label_scores(self, states: mx.array, alphas: mx.array, before: mx.array | None = None) -> mx.array:
        """The score of each label in int32 [B, K] states, times alphas [B], plus `before`: float32
        [B, K, V]."""
        return label_scores(self._arcs, states, self._which, alphas, before)

    def advance(self, states: mx.array, parents: mx.array, emitted: mx.array) -> mx.array:
        """The states after each slot has become its parent followed by a label (negative: none)."""
        return advance(self._arcs, states, self._which, parents, emitted)

    def ends(self, states: mx.array) -> mx.array:
        """The score of ending in each state, float32 [B, K]."""
        return mx.take(self._ends, states)


def join_bounds(bounds: Sequence[BoundGraph], alphas: Sequence[mx.array]) -> tuple[Graphs, mx.array]:
    """Several graphs per utterance in the form of one kernel, weighted by alphas, float32 [B] each; and the
    score of ending in each of their states, float32 [S]."""
    arcs, shifts, ends = _join(tuple(graph for bound in bounds for graph in bound._graphs))
    firsts = np.cumsum([0, *(len(bound._graphs) for bound in bounds)])[:-1]
    which = [mx.array(bound._indices + int(first)) for bound, first in zip(bounds, firsts, strict=True)]
    starts = [mx.take(shifts, each) + bound._reached for bound, each in zip(bounds, which, strict=True)]
    columns = (mx.stack(list(each), axis=1) for each in (which, starts, alphas))
    return Graphs(arcs, *columns), ends
