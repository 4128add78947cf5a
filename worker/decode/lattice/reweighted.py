"""Rescores a lattice of words with an n-gram model, by an exact expansion that keeps every path.

A state is a pair of a lattice state and a model state, so that each arc has one context and the model's
log-probability is a weight like any other (the expansion of Xu et al. 2018, "A pruned RNNLM lattice-rescoring
algorithm for automatic speech recognition", without its pruning, which an n-gram's few states do not need).
"""

from collections import defaultdict
from dataclasses import replace

from worker.decode.fusion.graph import Graph
from worker.decode.lattice.word_graph import Final, WordArc, WordGraph, prune_graph, widest_beam

MOST_ARCS = 20_000
"""A larger lattice is pruned first, to the widest beam that leaves no more."""


def reweight(words: WordGraph, model: Graph, weight: float) -> WordGraph:
    """The lattice with `weight` times `model`'s score of each word's tokens and of the end added to `fused`.
    Every path is kept; shares are dropped."""
    if len(words.arcs) > MOST_ARCS:
        words = prune_graph(words, widest_beam(words, MOST_ARCS))
    leaving: dict[int, list[WordArc]] = defaultdict(list)
    for arc in words.arcs:
        leaving[arc.source].append(arc)
    numbers = {(0, model.start): 0}
    waiting: dict[int, list[int]] = defaultdict(list)
    waiting[0].append(model.start)
    arcs: list[tuple[tuple[int, int], tuple[int, int], WordArc]] = []
    for state in range(words.states):  # arcs lead from lower states to higher ones
        for context in waiting.pop(state, []):
            numbers[state, context] = len(numbers) if state else 0
            for arc in leaving[state]:
                added, next_context = model.read(arc.tokens, context)
                if next_context not in waiting[arc.target]:
                    waiting[arc.target].append(next_context)
                rescored = replace(arc, fused=arc.fused + weight * added, share=0.0)
                arcs.append(((state, context), (arc.target, next_context), rescored))
    expanded = tuple(
        replace(arc, source=numbers[source], target=numbers[target]) for source, target, arc in arcs
    )
    finals = {
        number: Final(end.acoustic, end.fused + weight * float(model.ends[context]))
        for (state, context), number in numbers.items()
        if (end := words.finals.get(state)) is not None
    }
    return WordGraph(expanded, finals)
