"""Log-mel features with their slopes, two frames side by side, as Granite Speech 5 takes them.

Zeros behind the samples until the frames are even in number, then the transform: a periodic Hann window in
its middle, frames centred on multiples of the hop, ends mirrored. Mel bands on HTK's scale without area norm;
the floor is measured from the utterance's own loudest band, so that the chunk alone decides. The power is
computed in 64 bit (`HostSpectra`). (transformers, feature_extraction_granite_speech5.py; torchaudio's
MelSpectrogram and compute_deltas.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.models.base import Ahead
from worker.models.conformer.config import PreprocessorConfig
from worker.models.front_ends.filter_bank import pad_features
from worker.models.front_ends.log_mel import HostSpectra

Float32 = NDArray[np.float32]

RATE = 16_000
BLOCK = 2048  # transforms computed at once, which bounds the memory of a long recording
POWER_FLOOR = 1e-10


@dataclass(frozen=True, slots=True)
class DeltaMel:
    """The front end. `transform`, `window` and `hop` are samples, `floor` is decades of power below the
    loudest band. `slope`: frames over which a delta is measured. It holds nothing of MLX, so that any thread
    may call it."""

    mels: int = 80
    transform: int = 512
    window: int = 400
    hop: int = 160
    floor: float = 8.0
    slope: int = 3

    @property
    def width(self) -> int:
        """Numbers of a frame."""
        return 4 * self.mels

    def frames_of(self, samples: int) -> int:
        """How many frames that many samples give."""
        return -(-(samples // self.hop) // 2)

    def __call__(self, samples: Float32) -> Float32:
        """[N] in -1 … 1 at 16 kHz -> [frames_of(N), 4 * mels]."""
        count = 2 * self.frames_of(len(samples))
        if count == 0:
            return np.zeros((0, self.width), np.float32)
        logs = self._log_mel(np.asarray(samples, np.float32), count)
        logs = np.maximum(logs, logs.max() - self.floor) / 4.0 + 1.0
        reach = (self.slope - 1) // 2
        padded = np.pad(logs, ((reach, reach), (0, 0)), mode="edge")
        steps = range(1, reach + 1)
        slopes = sum(
            step * (padded[reach + step : reach + step + count] - padded[reach - step : reach - step + count])
            for step in steps
        ) / (2 * sum(step * step for step in steps))
        return np.concatenate([logs, slopes], axis=1).astype(np.float32).reshape(count // 2, -1)

    def _log_mel(self, samples: Float32, count: int) -> Float32:
        """log10 of [count, mels]."""
        spectra = HostSpectra(
            PreprocessorConfig(window_stride=self.hop / RATE, n_fft=self.transform), self.taper
        )
        half, filters = self.transform // 2, mel_filters(self.mels, self.transform)
        wanted = (count - 1) * self.hop + 1
        padded = np.pad(samples, (0, max(0, wanted - len(samples))))
        padded = np.pad(padded, half, mode="reflect")
        logs = np.empty((count, self.mels), np.float32)
        for first in range(0, count, BLOCK):
            rows = min(BLOCK, count - first)
            power = spectra.power(padded[first * self.hop :], rows)
            logs[first : first + rows] = np.log10(np.maximum(power @ filters, POWER_FLOOR))
        return logs

    @property
    def taper(self) -> Float32:
        """The window in the middle of a transform."""
        taper, first = np.zeros(self.transform, np.float32), (self.transform - self.window) // 2
        angles = 2.0 * np.pi * np.arange(self.window) / self.window
        taper[first : first + self.window] = 0.5 - 0.5 * np.cos(angles)
        return taper

    def batch(
        self, samples: Sequence[Float32], ahead: Ahead | None = None
    ) -> tuple[mx.array, NDArray[np.int32]]:
        rows = zip(samples, ahead or [None] * len(samples), strict=True)
        return pad_features([self(row) if made is None else made for row, made in rows], self.width)


@cache
def mel_filters(mels: int, transform: int) -> Float32:
    """Triangles of height 1 on HTK's scale up to half the sampling rate, [transform // 2 + 1, mels]."""
    bins = np.linspace(0.0, RATE / 2, transform // 2 + 1)[:, None]
    points = np.linspace(0.0, 2595.0 * np.log10(1.0 + RATE / 2 / 700.0), mels + 2)
    edges = 700.0 * (10.0 ** (points / 2595.0) - 1.0)
    width = np.diff(edges)
    rising, falling = (bins - edges[:-2]) / width[:-1], (edges[2:] - bins) / width[1:]
    return np.maximum(0.0, np.minimum(rising, falling)).astype(np.float32)
