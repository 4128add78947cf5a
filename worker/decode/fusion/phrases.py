"""The graph of boosted phrases: a tree of their tokens with the failure links of Aho and Corasick (1975).

Each token that continues a phrase earns a gain at once, so that the phrase survives the beam, and more of it
the deeper: 1 for the first, 2 + ln(n) for the n-th, NeMo's scale. What was earned for a phrase that breaks
off, or that the utterance's end cuts, is given back. A finished phrase keeps its gain, also where a longer
one that it begins or stands in breaks off. A token earns for one phrase: of two that overlap, the first to
be finished. So no token earns but by going on with a phrase, and no repetition earns twice.

Knows token ids; does not know texts, nor by which weight a gain enters a score.
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
    """A beginning of a phrase: its length, and the length of the longest whole phrase it begins with.

    failure: where a search stands that reads on after the beginning broke off, the finished phrase (or else
    the first token) behind it; penalty: what the change of place costs, at most 0.
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
    """What the token that makes a beginning of `length` tokens earns."""
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
    """Sets each node's failure and penalty, by reading its tokens again without what it finished."""
    earned = [0.0]
    for length in range(1, max(node.length for node in nodes) + 1):
        earned.append(earned[-1] + _gain(length))
    queue = deque([(0, token, child, 0.0) for token, child in nodes[0].children.items()])
    while queue:
        parent, token, index, kept = queue.popleft()
        node, target = nodes[index], nodes[parent].failure
        if node.finished == node.length:
            target, kept = 0, 0.0
        elif parent:  # a lone first token leaves nothing to be read again
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
    """Skips failures that know no token the node itself does not: a phrase of one word said a hundred times
    would else make every look at the graph a hundred steps long."""
    for node in sorted(nodes[1:], key=lambda node: node.length):
        while node.failure and nodes[node.failure].children.keys() <= node.children.keys():
            node.penalty += nodes[node.failure].penalty
            node.failure = nodes[node.failure].failure
