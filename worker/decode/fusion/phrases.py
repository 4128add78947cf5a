"""The graph of boosted phrases: a prefix tree of their tokens with Aho-Corasick failure links (1975).

Each token that continues a phrase earns a gain at once, so that the phrase survives the beam: 1 for the first
token, 2 + ln(n) for the n-th, NeMo's scale. If a phrase breaks off, or the utterance ends within it, its gain
is taken back. A completed phrase keeps its gain even if a longer phrase that starts with or contains it
breaks off. A token earns for one phrase only: of two that overlap, the one completed first.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from worker.decode.fusion.graph import Graph

DEPTH_SCALE = 2.0


@dataclass(slots=True)
class _Node:
    """A prefix of a phrase: its length, and the length of the longest complete phrase it starts with.

    failure: the node to continue from when the prefix breaks off, without the completed phrase (or else the
    first token); penalty: the score of that transition, at most 0.
    """

    length: int
    finished: int
    children: dict[int, int] = field(default_factory=dict)
    failure: int = 0
    penalty: float = 0.0


def phrase_tree(phrases: Iterable[Sequence[int]], vocabulary: int) -> Graph:
    """The graph of `phrases` (token ids below `vocabulary`); empty and repeated ones change nothing."""
    nodes = _tree(phrases)
    _link(nodes)
    _shorten(nodes)
    ends = np.zeros(len(nodes), np.float32)
    for index in sorted(range(1, len(nodes)), key=lambda index: nodes[index].length):
        ends[index] = nodes[index].penalty + ends[nodes[index].failure]
    arcs = [(token, target) for node in nodes for token, target in sorted(node.children.items())]
    count = np.array([len(node.children) for node in nodes], np.int32)
    return Graph(
        first=(np.cumsum(count) - count).astype(np.int32),
        count=count,
        fallback=np.array([-1, *(node.failure for node in nodes[1:])], np.int32),
        penalty=np.array([node.penalty for node in nodes], np.float32),
        ends=ends,
        labels=np.array([token for token, _ in arcs], np.int32),
        weights=np.array([_gain(nodes[target].length) for _, target in arcs], np.float32),
        targets=np.array([target for _, target in arcs], np.int32),
        base=np.zeros(vocabulary, np.float32),
        base_targets=np.zeros(vocabulary, np.int32),
    )


def _gain(length: int) -> float:
    """The gain of the last token of a prefix of `length` tokens."""
    return 1.0 if length == 1 else DEPTH_SCALE + math.log(length)


def _tree(phrases: Iterable[Sequence[int]]) -> list[_Node]:
    nodes, finals = [_Node(0, 0)], set()
    for phrase in phrases:
        current = 0
        for token in phrase:
            if token not in nodes[current].children:
                nodes[current].children[token] = len(nodes)
                nodes.append(_Node(nodes[current].length + 1, 0))
            current = nodes[current].children[token]
        finals.add(current)
    for index, node in enumerate(nodes):  # parents come before children
        if index in finals:
            node.finished = node.length
        for child in node.children.values():
            nodes[child].finished = node.finished
    return nodes


def _link(nodes: list[_Node]) -> None:
    """Set each node's failure and penalty, by reading its tokens again without those of completed phrases."""
    earned = [0.0]
    for length in range(1, max(node.length for node in nodes) + 1):
        earned.append(earned[-1] + _gain(length))
    queue = deque([(0, token, child, 0.0) for token, child in nodes[0].children.items()])
    while queue:
        parent, token, index, kept = queue.popleft()
        node, target = nodes[index], nodes[parent].failure
        if node.finished == node.length:
            target, kept = 0, 0.0
        elif parent:  # after a single token there is nothing to read again
            while target and token not in nodes[target].children:
                kept += nodes[target].penalty
                target = nodes[target].failure
            if token in nodes[target].children:
                target = nodes[target].children[token]
                kept += _gain(nodes[target].length)
        node.failure = target
        node.penalty = kept - (earned[node.length] - earned[node.finished])
        queue.extend((index, token, child, kept) for token, child in node.children.items())


def _shorten(nodes: list[_Node]) -> None:
    """Skip failures that add no token to the node's own: otherwise a phrase that repeats one word a hundred
    times would make every lookup a hundred steps long."""
    for node in sorted(nodes[1:], key=lambda node: node.length):
        while node.failure and nodes[node.failure].children.keys() <= node.children.keys():
            node.penalty += nodes[node.failure].penalty
            node.failure = nodes[node.failure].failure
