"""Bands of power and normalised frames: padding and neighbours leave no trace, silence is exactly zero."""

import mlx.core as mx
import numpy as np

from kernels.contracts import same_bits
from kernels.contracts.case import normal
from kernels.nn import filters_of, mel_bands, normalise_frames
from kernels.runtime import use_backend
from ops.testbed.kernel_cases import TESTED


def test_frames_behind_an_utterance_are_never_read() -> None:
    x, lengths = normal(3, 40, 45), mx.array([40, 17, 0], mx.int32)
    inside = (mx.arange(40)[None, :] < lengths[:, None])[..., None]
    with use_backend(TESTED):
        clean = normalise_frames(x, lengths)
        dirty = normalise_frames(mx.where(inside, x, float("nan")), lengths)
        longer = normalise_frames(mx.pad(x, [(0, 0), (0, 23), (0, 0)]), lengths)
    assert same_bits(clean, dirty)
    assert same_bits(longer[:, :40], clean)
    assert not np.array(longer)[:, 40:].any()
    assert not np.array(clean)[1, 17:].any()


def test_each_band_has_mean_zero_and_deviation_one_and_silence_stays_zero() -> None:
    x = np.random.default_rng(0).normal(-9, 3, (2, 300, 80)).astype(np.float32)
    x[1] = -16.635532
    with use_backend(TESTED):
        made = np.array(normalise_frames(mx.array(x), mx.array([300, 299], mx.int32)))
    np.testing.assert_allclose(made[0].mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(made[0].std(axis=0, ddof=1), 1, atol=1e-4)
    assert not made[1].any()


def test_a_band_is_the_sum_of_its_bins_alone() -> None:
    # Given filters of which the second group of 32 bands begins behind the first bins
    weights = np.zeros((50, 40), np.float32)
    weights[np.arange(40), np.arange(40)] = np.arange(1, 41)
    power = np.random.default_rng(1).random((6, 50)).astype(np.float32)
    power[2, 0] = np.nan
    with use_backend(TESTED):
        made = np.array(mel_bands(mx.array(power), filters_of(weights)))
    sound = np.delete(np.arange(6), 2)
    np.testing.assert_allclose(made[sound], power[sound, :40] * np.arange(1, 41), rtol=1e-6)
    np.testing.assert_allclose(made[2, 32:], power[2, 32:40] * np.arange(33, 41), rtol=1e-6)
