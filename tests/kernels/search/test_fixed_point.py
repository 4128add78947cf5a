"""Scores on a grid: exact sums, an order that no grouping changes, and ends that hold."""

import mlx.core as mx
import numpy as np
import pytest

from kernels.search import grid_sum, number_on_grid, on_grid, rebase, totals
from kernels.search.fixed_point import LEAST, ONE

MOST = 2**31 - 1


def test_a_number_goes_to_its_neighbour_on_the_grid_and_what_is_not_finite_stays() -> None:
    values = mx.array([0.0, 0.5 / ONE, -0.5 / ONE, -3.1, 1e9, -1e9, -np.inf, np.inf, np.nan])

    found = np.array(on_grid(values))

    expected = [0.0, 1 / ONE, 0.0, np.floor(-3.1 * ONE + 0.5) / ONE, 255.0, -255.0, -np.inf, np.inf]
    assert found[:-1].tolist() == expected
    assert np.isnan(found[-1])
    assert number_on_grid(0.3) == round(0.3 * ONE) / ONE


@pytest.mark.parametrize("seed", range(5))
def test_sums_on_the_grid_are_those_of_integers_in_any_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps = np.array(on_grid(mx.array(rng.normal(-0.8, 0.5, (400, 1, 6)).astype(np.float32))))
    base, scores = mx.zeros((1,), mx.int32), mx.zeros((1, 6))
    for step in steps:
        scores, base = rebase(scores + mx.array(step), base)
        assert mx.max(scores).item() == 0.0

    whole = np.round(steps[:, 0].astype(np.float64) * ONE).astype(np.int64).sum(axis=0)
    behind = (whole.max() - whole) / ONE < -LEAST
    assert behind.sum() > 1
    assert np.array_equal(totals(scores, base)[0, behind] * ONE, whole[behind])


def test_what_falls_far_behind_stays_within_and_dead_slots_stay_dead() -> None:
    scores, base = rebase(mx.array([[-2.0, -400.0, -mx.inf], [-mx.inf] * 3]), mx.array([5, 7], mx.int32))

    assert np.array(scores).tolist() == [[0.0, LEAST, -np.inf], [-np.inf] * 3]
    assert np.array(base).tolist() == [5 - 2 * ONE, 7]


def test_totals_saturate() -> None:
    near = mx.array([-MOST + 10, MOST - 10], mx.int32)
    scores, base = rebase(mx.array([[-3.0, -4.0], [3.0, 2.0]]), near)

    assert np.array(base).tolist() == [-MOST, MOST]
    assert totals(scores, base)[0].tolist() == [-MOST / ONE, -MOST / ONE]
    assert totals(scores, base)[1, 0] == MOST / ONE
    assert grid_sum(np.full(200_000, -300.0, np.float32)) == -MOST / ONE


def test_a_sum_of_log_probabilities_is_exact() -> None:
    values = np.random.default_rng(0).uniform(-5, 0, 1000).astype(np.float32)

    assert grid_sum(values) == grid_sum(values[::-1]) == grid_sum(np.sort(values))
    assert grid_sum(values) == pytest.approx(float(values.sum(dtype=np.float64)), abs=1000 / ONE)
    assert grid_sum(np.zeros(0, np.float32)) == 0.0
