"""From the links of an exact lattice to the best different word sequences and each one's best path.

Best first over word sequences with exact costs to go, as Kaldi's determinised lattice would list them. Costs
are integers, so equals are equals: among paths of one cost the one whose link comes first (by frame, then
arc) stays, among sequences the one whose labels are lower.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.search.fixed_point import ONE
from kernels.search.wfst import NEVER, WfstLinks
from worker.decode.wfst.graph import DecodingGraph

FAR = 1 << 60


_Entry = tuple[int, tuple[int, ...], int, "dict[int, _Way]", int]
"""Bound, words so far, a number that no other has, ways, and the node of the end or -1."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """What was searched: costs int64 [T, V] of input labels 1 ... V, base [T + 1] of its tokens, the penalty
    of arcs with a label that are no loop."""

    costs: NDArray[np.int64]
    base: NDArray[np.int64]
    penalty: int


class WordPath(NamedTuple):
    """A word sequence (output labels), the cost of its best path in 65536ths, and that path's links: frames
    and arcs in order."""

    words: tuple[int, ...]
    cost: int
    links: tuple[tuple[int, int], ...]


class PartLink(NamedTuple):
    """To a node, at a cost, with a word (0: none); `place` is its number among the links."""

    target: int
    cost: int
    word: int
    place: int


class _Way(NamedTuple):
    """The best way to a node: its cost, the link that ends it, and the ways and the node before that."""

    cost: int
    place: int
    before: "dict[int, _Way] | None"
    node: int


def best_word_sequences(
    links: WfstLinks, graph: DecodingGraph, utterance: Utterance, count: int, reach: int
) -> list[WordPath]:
    """The best `count` word sequences of a lattice that holds all links within `reach`, best first; fewer
    where it has no more."""
    near = ONE
    kept: list[WordPath] = []
    while True:
        # A path within `near` of the best has no link further behind: a smaller lattice has them all.
        complete = near >= reach
        part = LatticePart(links_within(links, reach if complete else near), graph, utterance)
        kept = []
        for path in part.sequences():
            if not complete and path.cost > part.best + near:
                break
            kept.append(path)
            if len(kept) == count:
                return kept
        if complete:
            return kept
        near *= 2


def links_within(links: WfstLinks, reach: int) -> WfstLinks:
    """The links of the paths that are no more than `reach` behind the best."""
    stays = links.behind <= reach
    return links._replace(frames=links.frames[stays], arcs=links.arcs[stays], behind=links.behind[stays])


class LatticePart:
    """Some of a lattice's links, between nodes that are numbered so that each link leads upwards. rows: of
    each link its frame (of those searched) and its arc. out: the links from each node. start: a node. final,
    to_go: of each node what ending there costs (FAR: it may not), and the best way to an end. best: the cost
    of the best path. moved: [T + 1], what the costs before a frame leave out. frame_of: of each node."""

    def __init__(self, links: WfstLinks, graph: DecodingGraph, utterance: Utterance) -> None:
        arrays, frames, arcs = graph.arrays, links.frames.astype(np.int64), links.arcs.astype(np.int64)
        length = len(utterance.base) - 1
        self.rows = list(zip(frames.tolist(), arcs.tolist(), strict=True))
        labels = arrays.ilabel[arcs].astype(np.int64)
        emits = labels > 0
        sources, targets = graph.sources[arcs], arrays.next[arcs].astype(np.int64)
        costs = graph.weights[arcs].copy()
        said, spoken = frames[emits], labels[emits] - 1
        costs[emits] += utterance.costs[said, spoken] - utterance.base[said + 1]
        costs[emits] += np.where(targets[emits] != sources[emits], utterance.penalty, 0)
        # Numbers go up with the frame, and within it with the level of the state.
        depth, states = arrays.epsilon_depth + 1, arrays.states

        def keys(at: NDArray[np.int64], of: NDArray[np.int64]) -> NDArray[np.int64]:
            return (at * depth + arrays.level[of]) * states + of

        start = np.array([arrays.start])
        begins = keys(np.zeros(1, np.int64), start)
        from_keys, to_keys = keys(frames, sources), keys(frames + emits, targets)
        nodes, numbers = np.unique(np.concatenate([begins, from_keys, to_keys]), return_inverse=True)
        self.start = int(numbers[0])
        self.out: list[list[PartLink]] = [[] for _ in nodes]
        words = arrays.olabel[arcs].tolist()
        tails, heads = numbers[1 : 1 + len(arcs)].tolist(), numbers[1 + len(arcs) :].tolist()
        for index, (tail, head, cost, word) in enumerate(
            zip(tails, heads, costs.tolist(), words, strict=True)
        ):
            self.out[tail].append(PartLink(head, cost, word, index))
        at_end = nodes // (depth * states) == length
        left = graph.finals[nodes % states] if links.final else np.zeros(len(nodes), np.int64)
        final = np.where(at_end & (left != NEVER), left, FAR)
        self.final: list[int] = final.tolist()
        self.to_go = self.final.copy()
        for node in range(len(nodes) - 1, -1, -1):
            for link in self.out[node]:
                self.to_go[node] = min(self.to_go[node], link.cost + self.to_go[link.target])
        self.moved = np.cumsum(utterance.base)
        self.frame_of: list[int] = (nodes // (depth * states)).tolist()
        self.best = self.to_go[self.start] + int(self.moved[-1])

    def sequences(self) -> Iterator[WordPath]:
        """All word sequences, best first."""
        entry = {self.start: _Way(0, -1, None, -1)}
        queue: list[_Entry] = [(self.to_go[self.start], (), 0, entry, -1)]
        tick = 0
        while queue:
            bound, words, _, ways, end = heapq.heappop(queue)
            if bound >= FAR // 2:
                return
            if end >= 0:
                yield WordPath(words, bound + int(self.moved[-1]), self._links_of(ways, end))
                continue
            ends, onward = self._spread(ways)
            if ends is not None:
                tick += 1
                heapq.heappush(queue, (ends[0], words, tick, ways, ends[1]))
            for word, group in onward.items():
                tick += 1
                bound = min(way.cost + self.to_go[node] for node, way in group.items())
                heapq.heappush(queue, (bound, (*words, word), tick, group, -1))

    def _spread(self, ways: dict[int, _Way]) -> tuple[tuple[int, int] | None, dict[int, dict[int, _Way]]]:
        """Follow the links without a word, into `ways`: the cheapest end (cost, node), and by word where the
        links with one lead."""
        pending, onward = list(ways), dict[int, dict[int, _Way]]()
        heapq.heapify(pending)
        ends: tuple[int, int] | None = None
        while pending:
            node = heapq.heappop(pending)
            cost = ways[node].cost
            if self.final[node] < FAR and (ends is None or cost + self.final[node] < ends[0]):
                ends = cost + self.final[node], node
            for link in self.out[node]:
                way = _Way(cost + link.cost, link.place, ways, node)
                known = ways if link.word == 0 else onward.setdefault(link.word, {})
                old = known.get(link.target)
                if old is None and link.word == 0:
                    heapq.heappush(pending, link.target)
                if old is None or (way.cost, way.place) < (old.cost, old.place):
                    known[link.target] = way
        return ends, onward

    def _links_of(self, ways: dict[int, _Way], node: int) -> tuple[tuple[int, int], ...]:
        path = []
        way = ways[node]
        while way.before is not None:
            path.append(self.rows[way.place])
            way = way.before[way.node]
        return tuple(path[::-1])
