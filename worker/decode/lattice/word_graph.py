"""A lattice of weighted words, with forward-backward computations in two semirings.

With the maximum: the weight of the best path through an arc, for pruning. With the log of the sum: an arc's
probability among all paths. State 0 is the start; arcs lead from lower states to higher ones.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from worker.decode.lattice.prefix_graph import LOG_ZERO, log_sum_exp

LEAST = -1e30  # below the weight of any existing path
SLACK = 1e-6  # tolerance for rounding, so that the best path always stays


@dataclass(frozen=True, slots=True)
class WordArc:
    """One word between two states. `acoustic` and `fused` are natural logs and add up to the weight; `start`
    and `end` are encoder frames (half-open). `share` is its probability, once computed. An empty `word` is a
    token without text. tokens: those that spell the word, if known."""

    source: int
    target: int
    word: str
    start: int
    end: int
    acoustic: float
    fused: float = 0.0
    share: float = 0.0
    tokens: tuple[int, ...] = ()

    @property
    def weight(self) -> float:
        return self.acoustic + self.fused


@dataclass(frozen=True, slots=True)
class Final:
    """The weight of ending in a state."""

    acoustic: float
    fused: float = 0.0

    @property
    def weight(self) -> float:
        return self.acoustic + self.fused


@dataclass(frozen=True, slots=True)
class WordGraph:
    """`arcs` ordered by source, and the weight of ending in each final state."""

    arcs: tuple[WordArc, ...]
    finals: dict[int, Final]

    @property
    def states(self) -> int:
        """The number of states."""
        ends = [arc.target for arc in self.arcs]
        return 1 + max([*ends, *self.finals], default=0)


@dataclass(frozen=True, slots=True)
class PrunedGraph:
    """A lattice of exactly the paths within `reach` (natural log) of the best one."""

    words: WordGraph
    reach: float


def best_path(graph: WordGraph) -> float:
    """The weight of the best path; -inf if there is none."""
    return _forward_backward(graph, max, 1.0)[1][0]


def total(graph: WordGraph, temperature: float = 1.0) -> float:
    """The log of the sum of all paths' probabilities."""
    return _forward_backward(graph, log_sum_exp, temperature)[1][0]


def best_weights(graph: WordGraph) -> list[float]:
    """For each arc, the weight of the best complete path through it; -inf if there is none."""
    before, after = _forward_backward(graph, max, 1.0)
    return [before[arc.source] + arc.weight + after[arc.target] for arc in graph.arcs]


def posteriors(graph: WordGraph, temperature: float = 1.0) -> list[float]:
    """For each arc, the share of all paths' probability that goes through it, 0 to 1.

    Paths weigh by their probability to the power of 1 / temperature.
    """
    before, after = _forward_backward(graph, log_sum_exp, temperature)
    total = after[0]
    through = [
        before[arc.source] + arc.weight / temperature + after[arc.target] - total for arc in graph.arcs
    ]
    return [min(math.exp(value), 1.0) for value in through]


def with_posteriors(graph: WordGraph) -> WordGraph:
    """The graph with each arc's posterior as its share."""
    return with_shares(graph, posteriors(graph))


def with_shares(graph: WordGraph, shares: Sequence[float]) -> WordGraph:
    """The graph with the arcs' shares set to `shares`."""
    # Written out: `dataclasses.replace` takes several times as long.
    arcs = (
        WordArc(
            *(arc.source, arc.target, arc.word, arc.start, arc.end),
            *(arc.acoustic, arc.fused, share, arc.tokens),
        )
        for arc, share in zip(graph.arcs, shares, strict=True)
    )
    return WordGraph(tuple(arcs), graph.finals)


def prune_graph(graph: WordGraph, beam: float) -> WordGraph:
    """The arcs and ends whose best complete path is within `beam` of the best path, and no others."""
    before, after = _forward_backward(graph, max, 1.0)
    least = max(after[0] - beam - SLACK, LEAST)
    kept = [arc for arc in graph.arcs if before[arc.source] + arc.weight + after[arc.target] >= least]
    finals = {state: final for state, final in graph.finals.items() if before[state] + final.weight >= least}
    return _renumber(kept, finals)


def widest_beam(graph: WordGraph, most: int) -> float:
    """The widest beam with which `prune_graph` leaves at most `most` arcs, or those of the best paths."""
    if len(graph.arcs) <= most:
        return math.inf
    best = best_path(graph)
    behind = sorted(best - worth for worth in best_weights(graph) if worth > LOG_ZERO)
    if len(behind) <= most:
        return math.inf
    # Arcs of equal weight are kept or pruned together.
    return max((gap for gap in behind if gap < behind[most] - 2 * SLACK), default=0.0)


def _forward_backward(
    graph: WordGraph, add: Callable[[list[float]], float], temperature: float
) -> tuple[list[float], list[float]]:
    """The forward weights (start to each state) and backward weights (each state to an end)."""
    states = graph.states
    into: list[list[float]] = [[] for _ in range(states)]
    into[0].append(0.0)
    before = [LOG_ZERO] * states
    by_source: list[list[WordArc]] = [[] for _ in range(states)]
    for arc in graph.arcs:
        by_source[arc.source].append(arc)
    for state in range(states):
        before[state] = add(into[state]) if into[state] else LOG_ZERO
        for arc in by_source[state]:
            into[arc.target].append(before[state] + arc.weight / temperature)
    after = [LOG_ZERO] * states
    for state in range(states - 1, -1, -1):
        ways = [arc.weight / temperature + after[arc.target] for arc in by_source[state]]
        if state in graph.finals:
            ways.append(graph.finals[state].weight / temperature)
        after[state] = add(ways) if ways else LOG_ZERO
    return before, after


def _renumber(arcs: Sequence[WordArc], finals: dict[int, Final]) -> WordGraph:
    """The graph with states renumbered without gaps."""
    used = sorted({0, *finals, *(state for arc in arcs for state in (arc.source, arc.target))})
    place = {state: index for index, state in enumerate(used)}
    moved = [
        WordArc(
            *(place[arc.source], place[arc.target], arc.word, arc.start, arc.end),
            *(arc.acoustic, arc.fused, arc.share, arc.tokens),
        )
        for arc in arcs
    ]
    return WordGraph(tuple(moved), {place[state]: final for state, final in finals.items()})
