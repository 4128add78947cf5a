"""Graphs with back-off, looked at and walked: kernel, reference, and one state at a time in Python."""

import mlx.core as mx
import numpy as np
import pytest

from kernels.contracts import arcs_of
from kernels.runtime import use_backend
from kernels.search import ngram
from ops.testbed.kernel_cases import TESTED

LABELS = 70


def one_by_one(graph: ngram.Arcs, state: int, which: int, label: int) -> tuple[float, int]:
    """What a label costs in a state, and where it leads."""
    first, many, fallback, penalty, labels, weights, targets, roots, ends = (
        np.array(each) for each in graph[:9]
    )
    debt = 0.0
    while fallback[state] >= 0:
        for arc in range(first[state], first[state] + many[state]):
            if labels[arc] == label:
                return debt + weights[arc], int(targets[arc])
        debt, state = debt + penalty[state], int(fallback[state])
    return debt + roots[which, label], int(ends[which, label])


@pytest.mark.parametrize("backend", [TESTED, "fibers", "reference"])
def test_every_label_of_every_state(backend: str) -> None:
    graph = arcs_of()
    states = mx.array([[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]], mx.int32)
    which, alphas = mx.array([0, 1], mx.int32), mx.array([1.0, -0.5])
    before = mx.array(np.random.default_rng(1).normal(size=(2, 5, LABELS)).astype(np.float32))
    with use_backend(backend):
        first = np.array(ngram.label_scores(graph, states, which, alphas))
        added = np.array(ngram.label_scores(graph, states, which, alphas, before))
        walked = [
            np.array(
                ngram.advance(graph, states, which, mx.arange(5)[None] + mx.zeros((2, 1), mx.int32), emitted)
            )
            for emitted in (mx.full((2, 5), label, mx.int32) for label in range(LABELS))
        ]

    for b, alpha in enumerate([1.0, -0.5]):
        for k in range(5):
            found = [one_by_one(graph, b * 5 + k, b, label) for label in range(LABELS)]
            costs = np.array([cost for cost, _ in found]) * alpha
            assert first[b, k] == pytest.approx(costs, abs=1e-5)
            assert added[b, k] == pytest.approx(costs + np.array(before)[b, k], abs=1e-5)
            assert [walked[label][b, k] for label in range(LABELS)] == [target for _, target in found]


@pytest.mark.parametrize("backend", [TESTED, "fibers", "reference"])
def test_a_slot_goes_on_from_its_parents_state(backend: str) -> None:
    states = mx.array([[3, 1, 2]], mx.int32)
    with use_backend(backend):
        made = ngram.advance(
            arcs_of(),
            states,
            mx.array([0], mx.int32),
            mx.array([[2, 0, -1]], mx.int32),
            mx.array([[-1, -1, -1]], mx.int32),
        )
    assert made.tolist() == [[2, 3, 3]]


def test_a_chain_of_sixty_fallbacks_is_walked_to_its_end() -> None:
    """A phrase of one word said over and over makes such graphs."""
    depth = 60
    graph = ngram.Arcs(
        first=mx.arange(depth, dtype=mx.int32),
        arc_counts=mx.ones((depth,), mx.int32),
        fallback=mx.arange(depth, dtype=mx.int32) - 1,
        penalty=mx.where(mx.arange(depth) > 0, -1.0, 0.0),
        labels=mx.arange(depth, dtype=mx.int32),
        weights=mx.full((depth,), 100.0),
        targets=mx.arange(depth, dtype=mx.int32),
        roots=mx.zeros((1, LABELS)),
        root_targets=mx.zeros((1, LABELS), mx.int32),
        depth=depth,
        width=1,
    )
    states, which = mx.array([[depth - 1]], mx.int32), mx.array([0], mx.int32)
    expected = [0.0 if label in (0, *range(depth, LABELS)) else 100.0 for label in range(LABELS)]
    expected = [value - (depth - 1 - label if value else depth - 1) for label, value in enumerate(expected)]
    for backend in (TESTED, "fibers", "reference"):
        with use_backend(backend):
            made = ngram.label_scores(graph, states, which, mx.ones((1,)))
            onward = ngram.advance(
                graph, states, which, mx.zeros((1, 1), mx.int32), mx.array([[7]], mx.int32)
            )
        assert np.array(made)[0, 0].tolist() == expected
        assert onward.tolist() == [[7]]
