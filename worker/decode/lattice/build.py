"""Builds a lattice of words from the prefixes that a beam kept.

A state is a prefix that ends at a word's end; an arc is a word, with all pieces that spell it.
"""

from dataclasses import replace
from functools import lru_cache
from heapq import heappop, heappush

from worker.decode.lattice.prefix_graph import LOG_ZERO, Begins, Prefix, Record, prefix_graph
from worker.decode.lattice.word_graph import Final, WordArc, WordGraph
from worker.models.base import Tokenizer
from worker.models.tokenizers.pieces import begins_word

INNER = "a"  # a piece from the middle of a word


def word_graph(record: Record, tokenizer: Tokenizer) -> WordGraph:
    """The lattice of one utterance, unpruned."""
    fresh, closed = _word_boundaries(tokenizer.pieces)

    def begins(before: int, label: int) -> bool:
        return before < 0 or label in fresh or before in closed

    nodes = prefix_graph(record, begins)
    return _LatticeBuilder(nodes, begins, tokenizer).graph()


@lru_cache(maxsize=8)
def _word_boundaries(pieces: tuple[str, ...]) -> tuple[frozenset[int], frozenset[int]]:
    """The labels that begin a word after any other label, and those after which any label begins a word."""
    fresh = frozenset(label for label, piece in enumerate(pieces) if begins_word(INNER, piece))
    return fresh, frozenset(label for label, piece in enumerate(pieces) if begins_word(piece, INNER))


def acyclic_children(nodes: list[Prefix]) -> list[list[int]]:
    """The children of each node that lead to an end, without cycles: links that close one are cut.

    A dead prefix with a link keeps only children that the prefix it links to does not have.
    """
    while True:
        kept = _find_living_children(nodes)
        for node, children in zip(nodes, kept, strict=True):
            if node.link >= 0:
                labels = {nodes[child].label for child in kept[node.link]}
                children[:] = [child for child in children if nodes[child].label not in labels]
        knot = _links_on_cycles(nodes, kept)
        if not knot:
            return kept
        nodes[max(knot)].link = -1


def _find_living_children(nodes: list[Prefix]) -> list[list[int]]:
    useful = [False] * len(nodes)
    kept: list[list[int]] = [[] for _ in nodes]
    for index in range(len(nodes) - 1, -1, -1):
        node = nodes[index]
        kept[index] = [child for child in node.children if useful[child]]
        useful[index] = node.lives or node.link >= 0 or bool(kept[index])
    return kept


def _links_on_cycles(nodes: list[Prefix], kept: list[list[int]]) -> list[int]:
    """Linked nodes that lie on cycles."""
    ways = [
        [*children, node.link] if node.link >= 0 else children
        for node, children in zip(nodes, kept, strict=True)
    ]
    reached, waits = {0}, [0] * len(nodes)
    stack = [0]
    while stack:
        for target in ways[stack.pop()]:
            waits[target] += 1
            if target not in reached:
                reached.add(target)
                stack.append(target)
    ready = [0]
    done = set()
    while ready:
        index = ready.pop()
        done.add(index)
        for target in ways[index]:
            waits[target] -= 1
            if not waits[target]:
                ready.append(target)
    knot = reached - done
    while behind := {index for index in knot if not knot.intersection(ways[index])}:
        knot -= behind
    return [index for index in knot if nodes[index].link >= 0]


class _LatticeBuilder:
    """Traverses the prefixes word by word."""

    def __init__(self, nodes: list[Prefix], begins: Begins, tokenizer: Tokenizer) -> None:
        self._nodes = nodes
        self._begins = begins
        self._tokenizer = tokenizer
        self._kept = acyclic_children(nodes)
        self._texts: dict[tuple[int, ...], str] = {}

    def graph(self) -> WordGraph:
        arcs: dict[int, list[WordArc]] = {}
        waiting = [0]
        while waiting:
            state = waiting.pop()
            if state in arcs:
                continue
            arcs[state] = [arc for child in self._starts(state) for arc in self._word(state, child)]
            waiting += [arc.target for arc in arcs[state]]
        order = _topological_order(arcs)
        place = {state: index for index, state in enumerate(order)}
        word_arcs = [
            replace(a, source=place[a.source], target=place[a.target])
            for state in order
            for a in sorted(arcs[state], key=lambda arc: (arc.start, arc.word, place[arc.target]))
        ]
        finals = {
            place[state]: Final(
                self._nodes[state].final - self._nodes[state].mass - self._nodes[state].closing,
                self._nodes[state].closing,
            )
            for state in order
            if self._nodes[state].final > LOG_ZERO
        }
        return WordGraph(tuple(word_arcs), finals)

    def _starts(self, state: int) -> list[int]:
        """The children that begin a word."""
        label = self._nodes[state].label
        return [child for child in self._kept[state] if self._begins(label, self._nodes[child].label)]

    def _word(self, state: int, first: int) -> list[WordArc]:
        """Every path from `first` to the end of the word that it begins, as an arc."""
        nodes, arcs = self._nodes, []
        first_node, before = nodes[first], nodes[state]
        stack = [
            (first, first_node.mass - before.mass, first_node.fused - before.fused, first_node.frame + 1)
        ]
        while stack:
            index, weight, fused, end = stack.pop()
            node = nodes[index]
            end = max(end, node.frame + max(node.duration, 1))
            starts = self._starts(index)
            if starts or node.final > LOG_ZERO:
                text = self._text(node.word)
                arc = WordArc(
                    state, index, text, first_node.frame, end, weight - fused, fused, tokens=node.word
                )
                arcs.append(arc)
            for child in self._kept[index]:
                if child not in starts:
                    after = nodes[child]
                    more = after.mass - node.mass, after.fused - node.fused
                    stack.append((child, weight + more[0], fused + more[1], end))
            if node.link >= 0:
                stack.append((node.link, weight + node.price, fused, end))
        return arcs

    def _text(self, tokens: tuple[int, ...]) -> str:
        if tokens not in self._texts:
            self._texts[tokens] = self._tokenizer.decode(tokens).strip()
        return self._texts[tokens]


def _topological_order(arcs: dict[int, list[WordArc]]) -> list[int]:
    """The states in topological order, the start first."""
    waits = dict.fromkeys(arcs, 0)
    for out in arcs.values():
        for arc in out:
            waits[arc.target] += 1
    ready, order = [0], []
    while ready:
        state = heappop(ready)
        order.append(state)
        for arc in arcs[state]:
            waits[arc.target] -= 1
            if not waits[arc.target]:
                heappush(ready, arc.target)
    return order
