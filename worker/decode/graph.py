"""Weighted graphs over tokens with back-off, as arrays, walked by all hypotheses of a batch at once.

A state has arcs for some tokens and one fallback for the rest, as in an n-gram model ("NGPU-LM", Bataev et
al., 2025) and in an Aho-Corasick tree. Knows states, arcs and weights; does not know what they stand for
(`lm`, `boost`) nor how they enter a score (`fusion`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Graph:
    """One graph of S states and M arcs; state 0 is the root, `start` where an utterance begins.

    first, count: int32 [S], a state's arcs. fallback: int32 [S], -1 at the root. penalty: float32 [S], added
    when falling back. ends: float32 [S], added when the utterance ends there. labels, weights, targets: [M].
    base: float32 [V], what the root gives a token it has no arc for; base_targets: int32 [V], where it leads.
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
        """The state that an utterance has reached with these tokens. A state's arcs stand in the order of
        their labels."""
        here = self.start
        for token in tokens:
            while here > 0 and (at := self._arc(here, token)) < 0:
                here = int(self.fallback[here])
            if here == 0:
                at = self._arc(0, token)
            here = int(self.targets[at] if at >= 0 else self.base_targets[token])
        return here

    def _arc(self, state: int, token: int) -> int:
        first = int(self.first[state])
        arcs = self.labels[first : first + int(self.count[state])]
        at = int(np.searchsorted(arcs, token))
        return first + at if at < len(arcs) and arcs[at] == token else -1

    @cached_property
    def depth(self) -> int:
        """States on the longest way of fallbacks from a state to the root, both counted."""
        steps, here = 1, np.arange(len(self.fallback))
        while len(here := here[self.fallback[here] >= 0]):
            here = np.unique(self.fallback[here])
            steps += 1
        return steps

    @cached_property
    def width(self) -> int:
        """Most arcs of a state that is not the root."""
        return int(self.count[1:].max(initial=0))


@dataclass(frozen=True, eq=False)
class _Arrays:
    """Several graphs as one, on the device; base and base_targets are [G, V]; shifts [G], where the states of
    a graph begin. Of all graphs: `depth` the longest way of fallbacks, `width` and `root_width` the most arcs
    of a state and of a root."""

    first: mx.array
    count: mx.array
    fallback: mx.array
    penalty: mx.array
    ends: mx.array
    labels: mx.array
    weights: mx.array
    targets: mx.array
    base: mx.array
    base_targets: mx.array
    shifts: mx.array
    depth: int
    width: int
    root_width: int


@lru_cache(maxsize=8)
def _join(graphs: tuple[Graph, ...]) -> _Arrays:
    """The graphs side by side, states and arcs renumbered; kept, because batches come with the same ones."""
    states = np.cumsum([0, *(len(graph.first) for graph in graphs)])
    arcs = np.cumsum([0, *(len(graph.labels) for graph in graphs)])

    def joined(name: str, shifts: NDArray[np.int64] | None = None) -> mx.array:
        parts = [getattr(graph, name) for graph in graphs]
        if shifts is not None:
            moved = zip(parts, shifts, strict=False)
            parts = [np.where(part < 0, part, part + shift).astype(np.int32) for part, shift in moved]
        made = np.concatenate(parts)
        # An empty array cannot be indexed, not even by rows that are masked afterwards.
        return mx.array(made if len(made) else np.zeros(1, made.dtype))

    pairs = list(zip(graphs, states.tolist(), strict=False))
    return _Arrays(
        first=joined("first", arcs),
        count=joined("count"),
        fallback=joined("fallback", states),
        penalty=joined("penalty"),
        ends=joined("ends"),
        labels=joined("labels"),
        weights=joined("weights"),
        targets=joined("targets", states),
        base=mx.array(np.stack([graph.base for graph in graphs])),
        base_targets=mx.array(np.stack([graph.base_targets + shift for graph, shift in pairs]), mx.int32),
        shifts=mx.array(states[:-1].astype(np.int32)),
        depth=max(graph.depth for graph in graphs),
        width=max(graph.width for graph in graphs),
        root_width=max(int(graph.count[0]) for graph in graphs),
    )


class BoundGraph:
    """Graphs bound to a batch: utterance b walks graphs[which[b]], and none of the others, and begins where
    its context leads (the tokens before it; none by default)."""

    def __init__(
        self, graphs: Sequence[Graph], which: Sequence[int], contexts: Sequence[Sequence[int]] | None = None
    ) -> None:
        self._arrays = _join(tuple(graphs))
        self._which = mx.array(np.array(which, np.int32))
        tails = [()] * len(which) if contexts is None else contexts
        reached = [graphs[index].after(tail) for index, tail in zip(which, tails, strict=True)]
        self._starts = mx.take(self._arrays.shifts, self._which) + mx.array(reached, mx.int32)

    def start(self, beam: int) -> mx.array:
        """The first state of each of [B * beam] hypotheses, int32."""
        return mx.repeat(self._starts, beam)

    def look(self, states: mx.array) -> tuple[mx.array, mx.array]:
        """From int32 [N] states (N a multiple of B, utterance by utterance): what each token costs, float32
        [N, V], and the state it leads to, int32 [N, V]."""
        arrays = self._arrays
        chain, debts = [states], [mx.zeros(states.shape)]
        for _ in range(arrays.depth - 1):
            here, back = chain[-1], mx.take(arrays.fallback, chain[-1])
            debts.append(debts[-1] + mx.where(back < 0, 0.0, mx.take(arrays.penalty, here)))
            chain.append(mx.where(back < 0, here, back))
        rows = mx.repeat(self._which, states.shape[0] // self._which.shape[0])
        spare = [(0, 0), (0, 1)]  # a column for what is no arc
        costs = mx.pad(mx.take(arrays.base, rows, axis=0) + debts[-1][:, None], spare)
        targets = mx.pad(mx.take(arrays.base_targets, rows, axis=0), spare)
        # The root first; what a longer context knows better is written over it.
        costs, targets = self._write(costs, targets, chain[-1], debts[-1], arrays.root_width)
        for state, debt in zip(chain[-2::-1], debts[-2::-1], strict=True):
            costs, targets = self._write(costs, targets, state, debt, arrays.width)
        return costs[:, :-1], targets[:, :-1]

    def _write(
        self, costs: mx.array, targets: mx.array, state: mx.array, debt: mx.array, width: int
    ) -> tuple[mx.array, mx.array]:
        """Write the first `width` arcs of each row's state into its row."""
        if width == 0:
            return costs, targets
        steps = mx.arange(width)
        real = steps < mx.take(self._arrays.count, state)[:, None]
        arcs = mx.where(real, mx.take(self._arrays.first, state)[:, None] + steps, 0)
        columns = mx.where(real, mx.take(self._arrays.labels, arcs), costs.shape[1] - 1)
        return (
            mx.put_along_axis(costs, columns, mx.take(self._arrays.weights, arcs) + debt[:, None], axis=1),
            mx.put_along_axis(targets, columns, mx.take(self._arrays.targets, arcs), axis=1),
        )

    def ends(self, states: mx.array) -> mx.array:
        """What ending in each state adds, float32 [N]."""
        return mx.take(self._arrays.ends, states)
