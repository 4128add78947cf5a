"""Log-mel features with the meaning of NeMo's AudioToMelSpectrogramPreprocessor, in numpy.

Knows audio files and mel bands; knows nothing of models, caches or texts.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

RATE = 16_000
HOP = 160
WINDOW = 400
FFT = 512
MELS = 80
PREEMPHASIS = 0.97
GUARD = 2.0**-24
# What digital silence looks like: the logarithm of the guard alone.
FLOOR = float(np.log(GUARD))

Audio = npt.NDArray[np.float32]
Mels = npt.NDArray[np.float32]


def to_mel(hertz: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Slaney's mel scale (Auditory Toolbox): linear below 1 kHz, logarithmic above."""
    above = 15.0 + 27.0 * np.log(np.maximum(hertz, 1.0) / 1000.0) / np.log(6.4)
    return np.where(hertz >= 1000.0, above, hertz * 3.0 / 200.0)


def to_hertz(mel: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(mel >= 15.0, 1000.0 * np.exp(np.log(6.4) / 27.0 * (mel - 15.0)), mel * 200.0 / 3.0)


@lru_cache(maxsize=4)
def filterbank(mels: int = MELS) -> npt.NDArray[np.float32]:
    """Triangles of equal area, float32 [FFT // 2 + 1, mels]."""
    top = to_mel(np.array(RATE / 2.0))
    edges = to_hertz(np.linspace(0.0, float(top), mels + 2))
    bins = np.linspace(0.0, RATE / 2.0, FFT // 2 + 1)
    rising = (bins[:, None] - edges[None, :-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[None, 2:] - bins[:, None]) / (edges[2:] - edges[1:-1])
    bank = np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (edges[2:] - edges[:-2]))
    return bank.astype(np.float32)


@lru_cache(maxsize=1)
def window() -> npt.NDArray[np.float32]:
    """Symmetric Hann window of 400 samples, float32."""
    return np.hanning(WINDOW).astype(np.float32)


def log_mel(audio: Audio) -> Mels:
    """Log-mel of float32 audio [n] at 16 kHz: float32 [n // 160, 80], not yet normalised, no dither."""
    count = len(audio) // HOP
    if count == 0:
        return np.zeros((0, MELS), np.float32)
    padded = np.zeros(len(audio) + FFT, np.float32)
    half = FFT // 2
    padded[half] = audio[0]
    padded[half + 1 : half + len(audio)] = audio[1:] - np.float32(PREEMPHASIS) * audio[:-1]
    frames = np.lib.stride_tricks.sliding_window_view(padded, FFT)[::HOP][:count]
    centred = np.zeros(FFT, np.float32)
    start = (FFT - WINDOW) // 2
    centred[start : start + WINDOW] = window()
    spectrum = np.fft.rfft(frames * centred, axis=1)
    power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32)
    return np.log(power @ filterbank() + np.float32(GUARD)).astype(np.float32)


def normalise(mels: Mels) -> Mels:
    """Zero mean and unit (unbiased) deviation per band over the utterance, as NeMo's per_feature."""
    if len(mels) < 2:
        return np.zeros_like(mels)
    spread = mels.std(axis=0, ddof=1) + np.float32(1e-5)
    return ((mels - mels.mean(axis=0)) / spread).astype(np.float32)


def read_audio(path: Path) -> Audio:
    """Any file soundfile reads, mixed to mono at 16 kHz, float32 [n]."""
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = samples.mean(axis=1)
    return (soxr.resample(mono, rate, RATE) if rate != RATE else mono).astype(np.float32)
