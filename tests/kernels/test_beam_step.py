"""The beam's inner step by kernel: the reference's choices at every size, and nothing lost to bad rows."""

import mlx.core as mx
import numpy as np
import pytest

from kernels.beam_step import expand, merge
from kernels.device import use_backend
from kernels.expand import Expansion
from kernels.expand import expand as expand_reference
from kernels.merge import merge as merge_reference
from tests.kernels.cases import TESTED, recorded

DURATIONS = [0, 1, 2, 3, 4]
# Candidates closer than this may change places: the two forms sum under the logarithm in another order.
NEAR = 1e-4


def step(
    batch: int, beam: int, width: int, durations: list[int] | None = None, seed: int = 0
) -> list[mx.array | None]:
    """Inputs of one expansion; about a fifth of the slots dead, finished or forced."""
    rng = np.random.default_rng((seed, batch, beam, width))
    labels = rng.normal(size=(batch, beam, width)).astype(np.float32) * 3
    scores = (rng.normal(size=(batch, beam)) * 2 - 20).astype(np.float32)
    scores[rng.random((batch, beam)) < 0.2] = -np.inf
    flags = rng.random((2, batch, beam)) < 0.2
    spread = (
        None
        if durations is None
        else mx.array(rng.normal(size=(batch, beam, len(durations))).astype(np.float32))
    )
    table = None if durations is None else mx.array(durations, mx.int32)
    return [mx.array(labels), spread, table, mx.array(scores), mx.array(flags[0]), mx.array(flags[1])]


def both(inputs: list[mx.array | None], backend: str = TESTED) -> tuple[list[np.ndarray], list[np.ndarray]]:
    with use_backend(backend):
        made = [np.array(each) for each in expand(*inputs)]
    return made, [np.array(each) for each in expand_reference(*inputs)]


def assert_same_choices(made: list[np.ndarray], expected: list[np.ndarray]) -> None:
    alive = np.isfinite(expected[0])
    np.testing.assert_array_equal(np.isfinite(made[0]), alive)
    np.testing.assert_allclose(made[0][alive], expected[0][alive], rtol=2e-6, atol=2e-5)
    scores = np.where(alive, expected[0], -1e9)
    gaps = np.abs(np.diff(scores, axis=1, prepend=1e9, append=-2e9))
    sure = np.minimum(gaps[:, :-1], gaps[:, 1:]) > NEAR
    # The last place may be contested by a candidate that was not kept.
    sure[:, -1] &= ~alive[:, -1]
    for name, one, other in zip(Expansion._fields[1:4], made[1:4], expected[1:4], strict=True):
        np.testing.assert_array_equal(one[sure | ~alive], other[sure | ~alive], err_msg=name)
    labelled = sure & (expected[2] >= 0)
    np.testing.assert_allclose(made[4][labelled], expected[4][labelled], rtol=2e-6, atol=2e-5)
    np.testing.assert_array_equal(made[5], expected[5])


@pytest.mark.parametrize("durations", [None, DURATIONS])
@pytest.mark.parametrize(("beam", "width"), [(1, 2), (4, 1025), (8, 33), (16, 5), (32, 65), (32, 3)])
def test_the_kernel_chooses_what_the_reference_chooses(
    beam: int, width: int, durations: list[int] | None
) -> None:
    for batch, seed in ((1, 0), (9, 1), (9, 2)):
        assert_same_choices(*both(step(batch, beam, width, durations, seed)))


def test_the_largest_beam_runs_as_a_kernel_and_a_larger_one_by_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with recorded(monkeypatch) as launches:
        expand(*step(2, 32, 1025, DURATIONS))
        assert len(launches) == 1
        expand(*step(2, 32, 1025, list(range(9))))
        assert len(launches) == 1


def test_equal_candidates_stand_by_slot_then_label_then_duration() -> None:
    beam, width = 6, 40
    labels, spread = mx.zeros((1, beam, width)), mx.zeros((1, beam, 2))
    off = mx.zeros((1, beam), mx.bool_)
    inputs = [labels, spread, mx.array([0, 2], mx.int32), mx.full((1, beam), -3.0), off, off]
    for backend in (TESTED, "fibers"):
        made, expected = both(inputs, backend)
        for one, other in zip(made[1:4], expected[1:4], strict=True):
            np.testing.assert_array_equal(one, other)
        assert made[2].tolist() == [[0, 0, 1, 1, 2, 2]]
        assert made[3].tolist() == [[0, 2, 0, 2, 0, 2]]


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_bad_row_fails_alone(poison: float) -> None:
    inputs = step(5, 4, 70, DURATIONS)
    inputs[4], inputs[5] = mx.zeros((5, 4), mx.bool_), mx.zeros((5, 4), mx.bool_)
    inputs[3] = mx.full((5, 4), -2.0) - mx.arange(4)
    labels = np.array(inputs[0])
    labels[2, 1] = poison
    if poison == np.inf:
        labels[2, 1, 1:] = 0.0
    clean, _ = both(inputs)
    made, _ = both([mx.array(labels), *inputs[1:]])
    others = [0, 1, 3, 4]
    for one, other in zip(made, clean, strict=True):
        np.testing.assert_array_equal(one[others], other[others])
    assert made[5].tolist() == [True, True, False, True, True]
    assert not np.isin(1, made[1][2])


def test_bad_durations_fail_a_row_too() -> None:
    inputs = step(3, 4, 70, DURATIONS)
    inputs[3], inputs[4] = mx.full((3, 4), -2.0), mx.zeros((3, 4), mx.bool_)
    spread = np.array(inputs[1])
    spread[1, 2, 3] = np.nan
    inputs[1] = mx.array(spread)
    made, _ = both(inputs)
    assert made[5].tolist() == [True, False, True]


def test_what_is_dead_or_finished_needs_no_normaliser() -> None:
    inputs = step(1, 3, 10, DURATIONS)
    inputs[0] = mx.full((1, 3, 10), float("nan"))
    inputs[3] = mx.array([[-1.0, float("-inf"), float("nan")]])
    inputs[4], inputs[5] = mx.array([[True, False, False]]), mx.zeros((1, 3), mx.bool_)
    made, _ = both(inputs)
    assert made[5].tolist() == [True]
    assert made[1].tolist() == [[0, -1, -1]]
    assert made[2].tolist() == [[-1, -1, -1]]
    assert made[0][0, 0] == -1.0


@pytest.mark.parametrize("beam", [1, 5, 32])
def test_merging_is_the_references(beam: int) -> None:
    rng = np.random.default_rng(beam)
    scores = np.round(rng.normal(size=(9, beam)) * 4).astype(np.float32) / 2
    scores[rng.random(scores.shape) < 0.2] = -np.inf
    classes = rng.integers(0, max(beam // 2, 1), (9, beam))
    same = mx.array(classes[:, :, None] == classes[:, None, :])
    expected = np.array(merge_reference(mx.array(scores), same))
    for backend in (TESTED, "fibers"):
        with use_backend(backend):
            made = np.array(merge(mx.array(scores), same))
        np.testing.assert_array_equal(np.isfinite(made), np.isfinite(expected))
        alive = np.isfinite(expected)
        np.testing.assert_allclose(made[alive], expected[alive], rtol=1e-6, atol=1e-6)
