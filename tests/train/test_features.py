"""Features against a restatement in PyTorch and against the definition of their parts."""

import numpy as np
import pytest
import torch

from ops.train.data.features import FLOOR, MELS, filterbank, log_mel, normalise, window


def restated(audio: np.ndarray) -> np.ndarray:
    x = torch.from_numpy(audio).double()
    x = torch.cat([x[:1], x[1:] - 0.97 * x[:-1]])
    hann = torch.hann_window(400, periodic=False, dtype=torch.float64)
    spectrum = torch.stft(x, 512, 160, 400, hann, center=True, pad_mode="constant", return_complex=True)
    power = spectrum.abs() ** 2
    mels = torch.from_numpy(filterbank().T.copy()).double() @ power
    return torch.log(mels + 2.0**-24).T[: len(audio) // 160].numpy()


@pytest.mark.parametrize("count", [160, 1_000, 16_123])
def test_log_mel_is_the_short_time_transform_of_the_pre_emphasised_signal(count: int) -> None:
    audio = np.random.default_rng(0).standard_normal(count).astype(np.float32) * 0.1
    assert np.abs(log_mel(audio) - restated(audio)).max() < 1e-4


def test_too_little_audio_has_no_frames() -> None:
    assert log_mel(np.zeros(159, np.float32)).shape == (0, MELS)


def test_digital_silence_is_the_floor_and_normalises_to_zero() -> None:
    mels = log_mel(np.zeros(4_000, np.float32))
    assert np.allclose(mels, FLOOR)
    assert np.abs(normalise(mels)).max() < 0.2


def test_normalised_bands_have_no_mean_and_unit_unbiased_spread() -> None:
    mels = np.random.default_rng(1).normal(-7, 3, (90, MELS)).astype(np.float32)
    done = normalise(mels)
    assert np.abs(done.mean(axis=0)).max() < 1e-4
    assert np.abs(done.std(axis=0, ddof=1) - 1).max() < 1e-3


def test_bands_overlap_and_their_triangles_have_equal_area() -> None:
    bank = filterbank()
    assert bank.shape == (257, MELS)
    assert bank.min() == 0.0
    # Area 1 over hertz, bins are 31.25 Hz apart; narrow triangles are sampled too coarsely to say.
    assert np.allclose(bank[:, 40:].sum(axis=0) * 31.25, 1.0, atol=0.05)
    assert window()[0] == 0.0
    assert window()[199] == pytest.approx(window()[200])
