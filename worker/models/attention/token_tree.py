"""Scores many sequences of an utterance at once: they share what they begin with, so a decoder goes once over
a tree of their tokens, whose nodes see what lies between them and the root.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.models.attention.decoder import AttentionDecoder, TokenTree
from worker.models.attention.layers import is_cpu, log_sum_exp
from worker.models.attention.state import EncodedWindow, Memory


@dataclass(frozen=True, slots=True)
class _Tree:
    """The tokens of an utterance's sequences, each prefix once. tokens, depths: of the nodes, the prompt's
    first. parents: their nodes before. steps: of each sequence the nodes that it goes through and the tokens
    that it reads there."""

    tokens: list[int]
    depths: list[int]
    parents: list[int]
    steps: list[tuple[list[int], list[int]]]


def score_together(
    decoder: AttentionDecoder,
    encoded: Sequence[EncodedWindow],
    prompts: Sequence[Sequence[int]],
    nbest: Sequence[Sequence[Sequence[int]]],
) -> list[NDArray[np.float32]]:
    """As `AttentionHead.score`. A CPU takes each utterance by itself."""
    trees = [_tree(*each) for each in zip(prompts, nbest, strict=True)]
    size = 1 if is_cpu() else len(trees)
    scores: list[NDArray[np.float32]] = []
    for first in range(0, len(trees), max(size, 1)):
        scores += _score_trees(decoder, encoded[first : first + size], trees[first : first + size])
    return scores


def _score_trees(
    decoder: AttentionDecoder, encoded: Sequence[EncodedWindow], trees: Sequence[_Tree]
) -> list[NDArray[np.float32]]:
    longest = max(len(tree.tokens) for tree in trees)
    tokens = np.zeros((len(trees), longest), np.int32)
    depths = np.zeros_like(tokens)
    behind = np.zeros((len(trees), longest, longest), bool)
    behind[:, np.arange(longest), np.arange(longest)] = True
    for row, tree in enumerate(trees):
        tokens[row, : len(tree.tokens)], depths[row, : len(tree.tokens)] = tree.tokens, tree.depths
        for node, parent in enumerate(tree.parents):
            if parent >= 0:
                behind[row, node] |= behind[row, parent]
    forced = decoder.force(Memory.of(encoded), tokens, tree=TokenTree(depths, behind))
    logits = decoder.logits(forced.hidden)
    sums = log_sum_exp(logits)[..., 0]
    scores = []
    for row, tree in enumerate(trees):
        nodes = mx.array([node for path, _ in tree.steps for node in path], mx.int32)
        read = mx.array([token for _, spoken in tree.steps for token in spoken], mx.int32)
        each = np.array(logits[row, nodes, read] - sums[row, nodes]) if nodes.size else np.zeros(0)
        ends = np.cumsum([0, *(len(path) for path, _ in tree.steps)])
        sequences = zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
        scores.append(np.array([each[a:b].sum(dtype=np.float64) for a, b in sequences], np.float32))
    return scores


def _tree(prompt: Sequence[int], sequences: Sequence[Sequence[int]]) -> _Tree:
    tokens, depths = list(prompt), list(range(len(prompt)))
    parents = [depth - 1 for depth in depths]
    children: dict[tuple[int, int], int] = {}
    steps = []
    for sequence in sequences:
        node, path = len(prompt) - 1, []
        for at, token in enumerate(sequence):
            path.append(node)
            if at + 1 == len(sequence):
                break  # what the last token leads to is not asked
            if (node, token) not in children:
                children[node, token] = len(tokens)
                tokens.append(token)
                depths.append(depths[node] + 1)
                parents.append(node)
            node = children[node, token]
        steps.append((path, list(sequence)))
    return _Tree(tokens, depths, parents, steps)
