"""Changes to log-mel features that leave the words as they are, each drawn from a given generator.

All work on log-mels [frames, 80] before normalisation, where powers add by logaddexp: some hundred times
cheaper than the same on samples, so that the processor's time goes to the network. Knows no corpus.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ops.train.data.features import FLOOR, MELS, RATE, Mels, to_hertz, to_mel

Rng = np.random.Generator


def stretched(mels: Mels, rate: float) -> Mels:
    """Tempo changed by linear interpolation in time: about len / rate frames."""
    count = max(2, round(len(mels) / rate))
    if len(mels) < 2:
        return mels
    place = np.linspace(0.0, len(mels) - 1.0, count)
    left = np.minimum(place.astype(np.int64), len(mels) - 2)
    share = (place - left).astype(np.float32)[:, None]
    return mels[left] * (1 - share) + mels[left + 1] * share


@lru_cache(maxsize=64)
def _bands_of(percent: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    top = float(to_mel(np.array(RATE / 2.0)))
    centres = to_hertz(np.linspace(0.0, top, MELS + 2)[1:-1])
    place = np.clip(to_mel(centres * percent / 100.0) / top * (MELS + 1) - 1.0, 0.0, MELS - 1.0)
    left = np.minimum(place.astype(np.int64), MELS - 2)
    return left, (place - left).astype(np.float32)


def other_tract(mels: Mels, percent: int) -> Mels:
    """A longer or shorter vocal tract: band i takes the energy of percent / 100 times its frequency."""
    left, share = _bands_of(percent)
    return mels[:, left] * (1 - share) + mels[:, left + 1] * share


def with_noise(mels: Mels, noise: Mels, decibels: float, rng: Rng) -> Mels:
    """Noise under the speech, its mean level that far below the speech's loud frames."""
    start = int(rng.integers(len(noise)))
    bed = np.take(noise, np.arange(start, start + len(mels)), axis=0, mode="wrap")
    loud = np.percentile(mels.mean(axis=1), 85)
    bed = bed + np.float32(loud - bed.mean() - decibels * np.log(10.0) / 10.0)
    return np.logaddexp(mels, bed)


def in_a_room(mels: Mels, seconds: float, share: float) -> Mels:
    """Late reverberation: every band's power trails off by 60 dB in the given time."""
    power = np.exp(mels)
    count = max(2, int(seconds * 100))
    tail = share * np.exp(-np.log(1e6) * np.arange(1, count + 1) / count)
    size = len(mels) + count
    wet = np.fft.irfft(np.fft.rfft(power, size, axis=0) * np.fft.rfft(tail, size)[:, None], size, axis=0)
    out = power.copy()
    out[1:] += np.maximum(wet[: len(mels) - 1], 0.0)
    return np.log(out + np.float32(1e-8)).astype(np.float32)


def band_limited(mels: Mels, band: int, floor: float, rng: Rng) -> Mels:
    """Nothing but a floor above the band, as in speech that was 8 kHz once."""
    out = mels.copy()
    spread = np.float32(rng.uniform(0.05, 0.8))
    out[:, band:] = floor + spread * rng.standard_normal((len(out), MELS - band), dtype=np.float32)
    return out


def coloured(mels: Mels, rng: Rng) -> Mels:
    """Another microphone: a tilt and a smooth curve over the bands."""
    tilt = np.linspace(rng.uniform(-1.5, 1.5), rng.uniform(-1.5, 1.5), MELS)
    curve = np.interp(np.arange(MELS), np.linspace(0, MELS - 1, 6), rng.normal(0.0, 0.5, 6))
    return np.maximum(mels + (tilt + curve).astype(np.float32), np.float32(FLOOR))


def gap(mels: Mels, frames: int, rng: Rng) -> Mels:
    """A pause of that many frames at the recording's own noise floor; now and then digital silence."""
    if rng.random() < 0.12:
        return np.full((frames, MELS), FLOOR, np.float32)
    level = mels.mean(axis=1)
    quiet = np.argsort(level)[: max(2, len(level) // 15)]
    spread = np.float32(rng.uniform(0.3, 0.8))
    bed = mels[quiet].mean(axis=0) + spread * rng.standard_normal((frames, MELS), dtype=np.float32)
    return np.maximum(bed, np.float32(FLOOR)).astype(np.float32)


def trimmed(mels: Mels, rng: Rng) -> Mels:
    """Without the quiet at either end, but for a few frames of it."""
    level = mels.mean(axis=1)
    loud = np.flatnonzero(level > np.percentile(level, 95) - 4.0)
    start = max(0, int(loud[0]) - int(rng.integers(1, 8)))
    return mels[start : int(loud[-1]) + int(rng.integers(2, 9))]


def masked(mels: Mels, rng: Rng, bands: int = 20) -> Mels:
    """SpecAugment (Park et al. 2019) on normalised features: bands and short times set to the mean."""
    out = mels.copy()
    for _ in range(2):
        width = int(rng.integers(0, bands + 1))
        start = int(rng.integers(0, MELS - width + 1))
        out[:, start : start + width] = 0.0
    for _ in range(max(1, min(6, len(out) // 120))):
        width = int(rng.integers(0, max(1, min(22, int(0.06 * len(out)) + 4))))
        start = int(rng.integers(0, max(1, len(out) - width)))
        out[start : start + width] = 0.0
    return out


def varied(mels: Mels, noise: Mels, rng: Rng, *, strong: bool = False) -> Mels:
    """A random selection of the changes above; strong for the few voices of the digits."""
    if rng.random() < (0.85 if strong else 0.6):
        mels = stretched(mels, float(rng.uniform(0.8, 1.25) if strong else rng.uniform(0.87, 1.15)))
    if rng.random() < (0.8 if strong else 0.5):
        mels = other_tract(mels, int(rng.integers(84, 119) if strong else rng.integers(90, 112)))
    if rng.random() < 0.2:
        mels = in_a_room(mels, float(rng.uniform(0.15, 0.7)), float(rng.uniform(0.02, 0.2)))
    if rng.random() < 0.4:
        mels = coloured(mels, rng)
    if rng.random() < 0.4:
        mels = with_noise(mels, noise, float(rng.uniform(3.0, 30.0)), rng)
    if rng.random() < (0.5 if strong else 0.15):
        mels = band_limited(mels, int(rng.integers(58, 67)), float(rng.uniform(FLOOR, -11.0)), rng)
    return mels
