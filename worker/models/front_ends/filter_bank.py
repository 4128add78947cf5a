"""Kaldi's log filter bank: 80 bands every 10 ms, of frames that stand alone (Povey et al. 2011).

Samples count at the scale of 16-bit integers; every frame loses its mean, is pre-emphasised and windowed by
itself, and nothing is padded. Computed in 64 bit, for a band near silence is less than 32-bit rounding of the
transform leaves intact. Without dither: an answer depends on the recording alone.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.models.base import Ahead

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

FEATURES = 80
RATE = 16_000
FRAME, HOP, TRANSFORM = 400, 160, 512
SCALE = 32_768.0
PRE_EMPHASIS = 0.97
LOWEST_HZ = 20.0
FLOOR = 1.1920928955078125e-07  # of a 32-bit float, as Kaldi takes it
BLOCK = 2048  # frames computed at once, which bounds the memory of a long recording


def feature_frames(samples: int) -> int:
    """Frames that so many samples give."""
    return 1 + (samples - FRAME) // HOP if samples >= FRAME else 0


def filter_bank(samples: Float32) -> Float32:
    """[N] in -1 … 1 at 16 kHz -> [feature_frames(N), 80] natural logarithms."""
    count = feature_frames(len(samples))
    energies = np.empty((count, FEATURES), np.float32)
    if count == 0:
        return energies
    wave = np.ascontiguousarray(samples, np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(wave, FRAME)[::HOP]
    for first in range(0, count, BLOCK):
        frames = windows[first : min(first + BLOCK, count)].astype(np.float64) * SCALE
        frames -= frames.mean(axis=1, keepdims=True)
        shifted = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
        spectrum = np.fft.rfft((frames - PRE_EMPHASIS * shifted) * _window(), TRANSFORM, axis=1)
        power = spectrum.real**2 + spectrum.imag**2
        # The bin at half the sampling rate belongs to no band.
        energies[first : first + len(frames)] = np.log(np.maximum(power[:, :-1] @ mel_filters().T, FLOOR))
    return energies


@cache
def _window() -> Float64:
    """Povey's window: Hann's, to the power of 0.85."""
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FRAME) / (FRAME - 1))) ** 0.85


@cache
def mel_filters() -> Float64:
    """Triangles of equal width in mel, read at the mel of each bin, [80, 256]."""
    low, high = _mel(np.array(LOWEST_HZ)), _mel(np.array(RATE / 2))
    step = (high - low) / (FEATURES + 1)
    bins = _mel(np.arange(TRANSFORM // 2) * (RATE / TRANSFORM))
    left = low + step * np.arange(FEATURES)[:, None]
    return np.maximum(0.0, np.minimum((bins - left) / step, (left + 2 * step - bins) / step))


def _mel(hertz: NDArray[np.floating[Any]]) -> Float64:
    scaled: Float64 = 1127.0 * np.log(1.0 + hertz / 700.0)
    return scaled


class FilterBank:
    """The front end of a batch."""

    def frames_of(self, samples: int) -> int:
        """How many frames that many samples give."""
        return feature_frames(samples)

    def batch(
        self, samples: Sequence[Float32], ahead: Ahead | None = None
    ) -> tuple[mx.array, NDArray[np.int32]]:
        rows = zip(samples, ahead or [None] * len(samples), strict=True)
        return pad_features([filter_bank(row) if made is None else made for row, made in rows])


def pad_features(rows: Sequence[Float32], width: int = FEATURES) -> tuple[mx.array, NDArray[np.int32]]:
    """Features [T, width] of each utterance as one array with zeros behind them, and how many there are."""
    lengths = np.array([len(row) for row in rows], np.int32)
    padded = np.zeros((len(rows), int(lengths.max(initial=0)), width), np.float32)
    for row, each in zip(padded, rows, strict=True):
        row[: len(each)] = each
    return mx.array(padded), lengths


class FilterBankStream:
    """The frames of `filter_bank` of a recording that is still coming in."""

    def __init__(self) -> None:
        self._held, self._ended = np.zeros(0, np.float32), False

    def push(self, samples: Float32) -> None:
        """The next samples, [N]."""
        if self._ended:
            raise ValueError("the recording has ended; nothing can be pushed behind its end")
        self._held = np.concatenate([self._held, np.asarray(samples, np.float32)])

    def finish(self) -> None:
        """No sample comes after this; nothing is padded."""
        self._ended = True

    def take(self) -> Float32:
        """The frames that are complete and were not given yet, [n, 80]."""
        frames = filter_bank(self._held)
        self._held = self._held[len(frames) * HOP :]
        return frames
