"""Words and their weights on arcs between states: a lattice to compute with, and its best and total paths.

Two semirings. `best` (maximum): what the best path through an arc is worth, and so what may be pruned.
`total` (log of the sum): how probable an arc is among all paths. State 0 is the start; arcs lead from lower
states to higher ones. Knows weights; does not know where they came from or how they are written.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from worker.decode.lattice.prefix_graph import LOG_ZERO, log_sum_exp

LEAST = -1e30  # no path weighs less but one that is none
SLACK = 1e-6  # what rounding may take from a path: the best one always stays


@dataclass(frozen=True, slots=True)
class WordArc:
    """One word between two states. `acoustic` and `fused` are natural logs and add up to the weight; frames
    are encoder frames, `end` the first behind the word. `share` is how probable it is, once that was worked
    out. An empty `word` is a token without text. tokens: that spell the word, where the lattice knows."""

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
        """Natural log."""
        return self.acoustic + self.fused


@dataclass(frozen=True, slots=True)
class Final:
    """What ending in a state is worth."""

    acoustic: float
    fused: float = 0.0

    @property
    def weight(self) -> float:
        """Natural log."""
        return self.acoustic + self.fused


@dataclass(frozen=True, slots=True)
class WordGraph:
    """`arcs` by source, and what ending in each final state is worth."""

    arcs: tuple[WordArc, ...]
    finals: dict[int, Final]

    @property
    def states(self) -> int:
        """How many there are."""
        ends = [arc.target for arc in self.arcs]
        return 1 + max([*ends, *self.finals], default=0)


@dataclass(frozen=True, slots=True)
class PrunedGraph:
    """A lattice that holds every path within `reach` (natural log) of its best one, and no other arcs."""

    words: WordGraph
    reach: float


def best_path(graph: WordGraph) -> float:
    """The weight of the best path; -inf where there is none."""
    return _sums(graph, max, 1.0)[1][0]


def total(graph: WordGraph, temperature: float = 1.0) -> float:
    """The log of the sum of all paths' probabilities."""
    return _sums(graph, log_sum_exp, temperature)[1][0]


def best_weights(graph: WordGraph) -> list[float]:
    """Of each arc, the weight of the best complete path through it; -inf where there is none."""
    before, after = _sums(graph, max, 1.0)
    return [before[arc.source] + arc.weight + after[arc.target] for arc in graph.arcs]


def posteriors(graph: WordGraph, temperature: float = 1.0) -> list[float]:
    """Of each arc, the share of all paths' probability that goes through it, 0 to 1.

    Paths weigh by their probability to the power of 1 / temperature.
    """
    before, after = _sums(graph, log_sum_exp, temperature)
    total = after[0]
    through = [
        before[arc.source] + arc.weight / temperature + after[arc.target] - total for arc in graph.arcs
    ]
    return [min(math.exp(value), 1.0) for value in through]


def with_posteriors(graph: WordGraph) -> WordGraph:
    """The same, each arc with its posterior as its share."""
    return with_shares(graph, posteriors(graph))


def with_shares(graph: WordGraph, shares: Sequence[float]) -> WordGraph:
    """The same, each arc with its own of `shares`."""
    # Written out: `dataclasses.replace` takes several times as long.
    arcs = (
        WordArc(
            *(arc.source, arc.target, arc.word, arc.start, arc.end),
            *(arc.acoustic, arc.fused, share, arc.tokens),
        )
        for arc, share in zip(graph.arcs, shares, strict=True)
    )
    return WordGraph(tuple(arcs), graph.finals)


def pruned(graph: WordGraph, beam: float) -> WordGraph:
    """Exactly the arcs (and ends) of which the best complete path is within `beam` of the best path."""
    before, after = _sums(graph, max, 1.0)
    least = max(after[0] - beam - SLACK, LEAST)
    kept = [arc for arc in graph.arcs if before[arc.source] + arc.weight + after[arc.target] >= least]
    finals = {state: final for state, final in graph.finals.items() if before[state] + final.weight >= least}
    return _numbered(kept, finals)


def widest_beam(graph: WordGraph, most: int) -> float:
    """The widest beam with which `pruned` leaves at most `most` arcs, or only those of the best paths."""
    if len(graph.arcs) <= most:
        return math.inf
    best = best_path(graph)
    behind = sorted(best - worth for worth in best_weights(graph) if worth > LOG_ZERO)
    if len(behind) <= most:
        return math.inf
    # Arcs that are worth the same stay or go together.
    return max((gap for gap in behind if gap < behind[most] - 2 * SLACK), default=0.0)


def _sums(
    graph: WordGraph, add: Callable[[list[float]], float], temperature: float
) -> tuple[list[float], list[float]]:
    """Weights of the ways to each state and of those from it to an end."""
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


def _numbered(arcs: Sequence[WordArc], finals: dict[int, Final]) -> WordGraph:
    """The same without gaps between the numbers of states."""
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
