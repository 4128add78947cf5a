"""Log-mel features whose transform and filters are a checkpoint's own matrices.

Samples are mirrored at both ends, so that frames are centred on multiples of the hop. The matrices are a
Hann-windowed Fourier transform and mel filters, rounded as the model was trained with them; so is the
logarithm.
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.models.base import Ahead
from worker.models.front_ends.filter_bank import pad_features

Float32 = NDArray[np.float32]

TRANSFORM, HOP = 400, 160
FLOOR = 1e-10
BLOCK = 512
"""Frames computed at once, so that what is between two products stays in the cache."""


class KernelMel:
    """The front end of a batch. real, imaginary: [bins, TRANSFORM]; filters: [bins, bands]."""

    def __init__(self, real: Float32, imaginary: Float32, filters: Float32) -> None:
        self._transform = np.concatenate([real, imaginary]).T.copy()
        self._filters = filters

    def frames_of(self, samples: int) -> int:
        """How many frames that many samples give."""
        return samples // HOP + 1 if samples else 0

    def log_mel(self, samples: Float32) -> Float32:
        """Samples [N] in -1 … 1 at 16 kHz -> [frames_of(N), bands] natural logarithms."""
        count, bins = self.frames_of(len(samples)), len(self._filters)
        mel = np.empty((count, self._filters.shape[1]), np.float32)
        if not count:
            return mel
        padded = np.pad(np.asarray(samples, np.float32), TRANSFORM // 2, mode="reflect")
        windows = np.lib.stride_tricks.sliding_window_view(padded, TRANSFORM)[::HOP]
        for first in range(0, count, BLOCK):
            spectrum = windows[first : min(first + BLOCK, count)] @ self._transform
            power = spectrum[:, :bins] ** 2 + spectrum[:, bins:] ** 2
            mel[first : first + len(power)] = np.log(np.maximum(power @ self._filters, FLOOR))
        return mel.astype(np.float16).astype(np.float32)

    def batch(
        self, samples: Sequence[Float32], ahead: Ahead | None = None
    ) -> tuple[mx.array, NDArray[np.int32]]:
        rows = zip(samples, ahead or [None] * len(samples), strict=True)
        return pad_features([self.log_mel(row) if made is None else made for row, made in rows])
