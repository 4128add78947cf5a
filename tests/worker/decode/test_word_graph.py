"""Best and total paths of a lattice against all its paths written out one by one."""

import math
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.decode import (
    SLACK,
    Final,
    WordArc,
    WordGraph,
    best_path,
    best_weights,
    posteriors,
    prune_graph,
    total,
    widest_beam,
)

Path = tuple[tuple[WordArc, ...], int]


@st.composite
def graphs(draw: st.DrawFn) -> WordGraph:
    """Small lattices, dead ends among them."""
    states = draw(st.integers(1, 6))
    weight = st.integers(-12, 0).map(lambda n: n / 2)
    pairs = [(a, b) for a in range(states) for b in range(a + 1, states)]
    arcs = [
        WordArc(a, b, draw(st.sampled_from("xyz")), a, b, draw(weight), draw(weight))
        for a, b in draw(st.lists(st.sampled_from(pairs), max_size=10) if pairs else st.just([]))
    ]
    finals = draw(st.dictionaries(st.integers(0, states - 1), weight.map(Final), min_size=1))
    return WordGraph(tuple(sorted(arcs, key=lambda arc: arc.source)), finals)


def paths(graph: WordGraph, state: int = 0) -> Iterator[Path]:
    if state in graph.finals:
        yield (), state
    for arc in graph.arcs:
        if arc.source == state:
            for rest, end in paths(graph, arc.target):
                yield (arc, *rest), end


def weight(graph: WordGraph, path: Path) -> float:
    return sum(arc.weight for arc in path[0]) + graph.finals[path[1]].weight


def told(graph: WordGraph, path: Path) -> tuple[object, ...]:
    """A path without its states' numbers, which pruning may change."""
    return tuple((arc.word, arc.start, arc.end, arc.weight) for arc in path[0]), weight(graph, path)


@settings(deadline=None)
@given(graphs())
def test_the_best_path_through_each_arc(graph: WordGraph) -> None:
    every = list(paths(graph))
    best = max((weight(graph, path) for path in every), default=-math.inf)
    assert best_path(graph) == pytest.approx(best)
    for arc, found in zip(graph.arcs, best_weights(graph), strict=True):
        through = [weight(graph, path) for path in every if any(one is arc for one in path[0])]
        assert found == pytest.approx(max(through, default=-math.inf))


@settings(deadline=None)
@given(graphs(), st.integers(0, 16).map(lambda n: n / 2))
def test_pruning_keeps_exactly_the_arcs_of_paths_within_the_beam(graph: WordGraph, beam: float) -> None:
    every = list(paths(graph))
    best = max((weight(graph, path) for path in every), default=-math.inf)
    near = [path for path in every if weight(graph, path) >= best - beam - SLACK]

    small = prune_graph(graph, beam)

    kept = sorted((arc.word, arc.start, arc.end, arc.weight) for arc in small.arcs)
    wanted = {id(arc): arc for path in near for arc in path[0]}
    assert kept == sorted((arc.word, arc.start, arc.end, arc.weight) for arc in wanted.values())
    assert {told(graph, path) for path in near} <= {told(small, path) for path in paths(small)}
    assert len(small.finals) == len({path[1] for path in near})
    used = {0, *small.finals, *(s for arc in small.arcs for s in (arc.source, arc.target))}
    assert used == set(range(small.states))
    assert all(arc.source < arc.target for arc in small.arcs)


@settings(deadline=None)
@given(graphs(), st.sampled_from([0.5, 1.0, 3.0]))
def test_the_share_of_each_arc(graph: WordGraph, temperature: float) -> None:
    every = [(path, math.exp(weight(graph, path) / temperature)) for path in paths(graph)]
    if not every:
        return
    whole = math.fsum(value for _, value in every)
    assert total(graph, temperature) == pytest.approx(math.log(whole))
    for arc, found in zip(graph.arcs, posteriors(graph, temperature), strict=True):
        through = [value for path, value in every if any(one is arc for one in path[0])]
        assert found == pytest.approx(math.fsum(through) / whole, abs=1e-12)


@settings(deadline=None)
@given(graphs(), st.integers(0, 8))
def test_the_widest_beam_that_leaves_so_many_arcs(graph: WordGraph, most: int) -> None:
    if not any(paths(graph)):
        return
    beam = widest_beam(graph, most)
    fewest = len(prune_graph(graph, 0.0).arcs)
    assert len(prune_graph(graph, beam).arcs) <= max(most, fewest)
    alive = [worth for worth in best_weights(graph) if worth > -math.inf]
    if len(alive) <= most:
        assert len(prune_graph(graph, beam).arcs) == len(alive)


def test_a_lattice_without_arcs_is_an_empty_sentence() -> None:
    graph = WordGraph((), {0: Final(-1.5)})
    assert best_path(graph) == total(graph) == -1.5
    assert prune_graph(graph, 3.0) == graph
    assert graph.states == 1
