"""The CTC beam's kernel equals its reference to the last bit: ties, ragged lengths, few labels, bonuses."""

import mlx.core as mx
import numpy as np
import pytest

from kernels.contracts import same_bits
from kernels.runtime import use_backend
from kernels.search import CtcBacktrace, ctc_beam_reference
from kernels.search.ctc_beam import ctc_beam
from ops.testbed.kernel_cases import TESTED

LENGTHS = [40, 0, 1, 23]


def log_probs(seed: int, width: int, frames: int = 40, sharp: float = 2.0) -> mx.array:
    """[4, frames, width], some of them exactly equal."""
    logits = sharp * np.random.default_rng(seed).normal(0, 1, (4, frames, width))
    logits[..., -1] += sharp
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    if seed % 2:
        logits = np.round(logits, 1)
    return mx.array(logits.astype(np.float32))


def assert_equal(found: CtcBacktrace, expected: CtcBacktrace, rows: slice = slice(None)) -> None:
    for name, one, other in zip(CtcBacktrace._fields, found, expected, strict=True):
        if one.dtype == mx.float32:
            assert same_bits(one[rows], other[rows]), name
        else:
            assert np.array_equal(np.array(one[rows]), np.array(other[rows])), name


@pytest.mark.parametrize("beam", [1, 4, 16, pytest.param(32, marks=pytest.mark.long)])
@pytest.mark.parametrize("width", [2, 6, 140])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_the_kernel_is_its_reference_bit_for_bit(beam: int, width: int, seed: int) -> None:
    rows, lengths = log_probs(seed, width, sharp=1.0 + 2 * seed), mx.array(LENGTHS, mx.int32)
    for beta, fixed in ((0.0, False), (0.75, False), (-0.5, True)):
        with use_backend(TESTED):
            found = ctc_beam(rows, lengths, beam, beta, fixed=fixed)
        assert_equal(found, ctc_beam_reference(rows, lengths, beam, beta, fixed=fixed))


def test_fibers_agree_where_prefixes_meet_again() -> None:
    # Few labels: prefixes leave the beam, come back, and stand in it twice with and without a blank behind.
    rows, lengths = log_probs(1, 3, frames=24), mx.array([24, 0, 1, 20], mx.int32)
    with use_backend("cpu"):
        fast = ctc_beam(rows, lengths, 6, 0.5)
    with use_backend("fibers"):
        checked = ctc_beam(rows, lengths, 6, 0.5)
    assert_equal(fast, checked)
    assert_equal(fast, ctc_beam_reference(rows, lengths, 6, 0.5))


def test_a_beam_too_wide_for_a_threadgroup_takes_the_reference() -> None:
    rows, lengths = log_probs(0, 6, frames=8), mx.array([8, 0, 1, 5], mx.int32)
    with use_backend(TESTED):
        assert_equal(ctc_beam(rows, lengths, 40), ctc_beam_reference(rows, lengths, 40))


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_no_number_is_told_and_leaves_the_others(poison: float) -> None:
    clean = log_probs(0, 9)
    broken = np.array(clean)
    broken[0, 11] = poison
    lengths = mx.array(LENGTHS, mx.int32)
    with use_backend(TESTED):
        found, expected = ctc_beam(mx.array(broken), lengths, 4), ctc_beam(clean, lengths, 4)
    assert np.array(found.finite).tolist() == [False, True, True, True]
    assert np.array(ctc_beam_reference(mx.array(broken), lengths, 4).finite).tolist() == [False] + [True] * 3
    assert_equal(found, expected, slice(1, None))


def test_what_is_behind_an_end_is_not_read() -> None:
    clean = log_probs(0, 9)
    beyond = mx.arange(40)[None, :, None] >= mx.array(LENGTHS)[:, None, None]
    lengths = mx.array(LENGTHS, mx.int32)
    with use_backend(TESTED):
        found = ctc_beam(mx.where(beyond, mx.nan, clean), lengths, 4)
        assert_equal(found, ctc_beam(clean, lengths, 4))
        assert np.array(found.finite).all()
