"""Time warping against OpenAI's loop over cells, written down as it stands in timing.py."""

import mlx.core as mx
import numpy as np
import pytest

from kernels.attention import dtw_reference
from kernels.attention.dtw import WIDEST, dtw
from kernels.runtime import use_backend
from ops.testbed.kernel_cases import TESTED
from tests.golden.whisper_reference import openai_warp


def starts_of_openai(matrix: np.ndarray) -> list[int]:
    """The first column of each row on the negated matrix's way."""
    rows, columns = openai_warp(-matrix.astype(np.float64))
    return columns[np.pad(np.diff(rows), (1, 0), constant_values=1).astype(bool)].tolist()


@pytest.mark.parametrize("rounding", [None, 0, 1])
def test_starts_are_those_of_openai(rounding: int | None) -> None:
    """Rounded matrices are full of ties."""
    rng = np.random.default_rng(7)
    sizes = [(1, 1), (1, 9), (9, 1), (7, 7), (33, 20), (20, 70), (64, 65)]
    gains = rng.normal(size=(len(sizes), 64, 70)).astype(np.float32)
    if rounding is not None:
        gains = np.round(gains, rounding)
    rows, columns = (mx.array(list(each), mx.int32) for each in zip(*sizes, strict=True))
    with use_backend(TESTED):
        made = np.array(dtw(mx.array(gains), rows, columns))
    reference = np.array(dtw_reference(mx.array(gains), rows, columns))
    np.testing.assert_array_equal(made, reference)
    for at, (n, m) in enumerate(sizes):
        assert made[at, :n].tolist() == starts_of_openai(gains[at, :n, :m])
        assert (made[at, n:] == -1).all()


def test_all_ties_go_along_the_columns() -> None:
    """Every way is as good: going back, the path stays in its row until the first column."""
    with use_backend(TESTED):
        made = dtw(mx.zeros((1, 4, 6)), mx.array([4]), mx.array([6]))
    assert made.tolist() == [starts_of_openai(np.zeros((4, 6)))]


def test_what_is_behind_the_lengths_is_not_read() -> None:
    gains = np.random.default_rng(1).normal(size=(4, 12, 40)).astype(np.float32)
    rows, columns = mx.array([12, 5, 0, 3], mx.int32), mx.array([17, 40, 9, 0], mx.int32)
    dirty = gains.copy()
    for at, (n, m) in enumerate(zip(np.array(rows).tolist(), np.array(columns).tolist(), strict=True)):
        dirty[at, n:], dirty[at, :, m:] = np.nan, np.nan
    for run in (dtw, dtw_reference):
        with use_backend(TESTED):
            clean = np.array(run(mx.array(gains), rows, columns))
            np.testing.assert_array_equal(clean, np.array(run(mx.array(dirty), rows, columns)))
        assert (clean[2:] == -1).all()
        assert clean[0, 0] == clean[1, 0] == 0


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_matrix_that_is_no_number_keeps_to_itself_and_to_its_columns(poison: float) -> None:
    gains = np.random.default_rng(2).normal(size=(2, 9, 20)).astype(np.float32)
    hurt = gains.copy()
    hurt[0, 2:5, ::3] = poison
    full = mx.array([9, 9], mx.int32), mx.array([20, 20], mx.int32)
    with use_backend(TESTED):
        clean, made = np.array(dtw(mx.array(gains), *full)), np.array(dtw(mx.array(hurt), *full))
    np.testing.assert_array_equal(made[1], clean[1])
    np.testing.assert_array_equal(made, np.array(dtw_reference(mx.array(hurt), *full)))
    assert (made[0] >= 0).all()
    assert (made[0] < 20).all()


def test_more_rows_than_a_threadgroup_holds_take_the_reference() -> None:
    gains = mx.array(np.random.default_rng(4).normal(size=(1, WIDEST + 3, 30)).astype(np.float32))
    size = mx.array([WIDEST + 3], mx.int32), mx.array([30], mx.int32)
    with use_backend(TESTED):
        assert dtw(gains, *size).tolist() == dtw_reference(gains, *size).tolist()


def test_no_utterance_is_no_error_and_shapes_that_do_not_fit_are_refused() -> None:
    with use_backend(TESTED):
        assert dtw(mx.zeros((0, 3, 4)), mx.zeros((0,), mx.int32), mx.zeros((0,), mx.int32)).shape == (0, 3)
        assert dtw(mx.zeros((1, 3, 0)), mx.array([3]), mx.array([0])).tolist() == [[-1, -1, -1]]
    with pytest.raises(ValueError, match="as many entries"):
        dtw(mx.zeros((2, 3, 4)), mx.array([3]), mx.array([4, 4]))
