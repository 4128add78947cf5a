"""Layers of an LSTM over many windows at once, as a function of this CPU (`lstm_windows.cpp`).

For x86-64 with AVX2 or AVX-512, where a product of numpy's packs its weights anew at each step of time and
leaves the activations to passes of their own. Windows are columns that never mix, so a window's output has
the same bits whatever stands beside it. Knows no MLX and no model; one thread.
"""

import ctypes
import platform
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kernels.runtime.build_cpu import FAST_FLAGS, build_library, cpu_model

Floats = NDArray[np.float32]
Layer = tuple[Floats, Floats, Floats]
"""Weights of the input `[4 * S, D]` and of the output before `[4 * S, S]`, and the bias `[4 * S]`; gates in
the order i, f, g, o."""

_SOURCE = Path(__file__).with_suffix(".cpp")
_HALVES = np.array([0.5, 0.5, 1.0, 0.5], np.float32)


def can_run() -> bool:
    """Whether this CPU has the instructions."""
    flags = cpu_model().split()
    return platform.machine() == "x86_64" and "avx2" in flags and "fma" in flags


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(build_library("lstm_windows", _SOURCE.read_text(), FAST_FLAGS)))
    library.spool_lstm_windows.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int] * 4 + [ctypes.c_void_p] * 2
    library.spool_lstm_windows.restype = None
    return library


class LstmWindows:
    """The layers of one network, their weights in the kernel's order; safe to share."""

    def __init__(self, weights: Floats, biases: Floats, width: int, size: int) -> None:
        """As `pack` gives them."""
        self._weights, self._biases = weights, biases
        self._width, self._size = width, size
        self._layers = len(biases) // (4 * size)

    @classmethod
    def pack(cls, layers: Sequence[Layer]) -> Self:
        """The layers from the first to the last. Raises BuildFailed."""
        units = int(_library().spool_lstm_units())
        size = layers[0][1].shape[1]
        halves = np.repeat(_HALVES, size)[:, None]
        weights, biases = [], []
        for entering, recurrent, bias in layers:
            both = np.concatenate([entering, recurrent], axis=1) * halves
            rows = both.reshape(4, size, -1).transpose(1, 0, 2).reshape(size // units, 4 * units, -1)
            weights.append(rows.transpose(0, 2, 1).ravel())
            biases.append((bias * halves[:, 0]).reshape(4, size).T.ravel())
        packed = np.concatenate(weights, dtype=np.float32)
        return cls(packed, np.concatenate(biases, dtype=np.float32), layers[0][0].shape[1], size)

    def last_outputs(self, windows: Sequence[Floats]) -> Floats:
        """`[N, S]`: the last layer's output behind each window `[T, D]`, T at least 1 and of any length."""
        panel = int(_library().spool_lstm_panel())
        order = sorted(range(len(windows)), key=lambda index: -len(windows[index]))
        columns = -(-len(order) // panel) * panel
        counts = np.zeros(columns, np.int32)
        counts[: len(order)] = [len(windows[index]) for index in order]
        steps = np.zeros((counts[0], self._width, columns), np.float32)
        for column, index in enumerate(order):
            steps[: counts[column], :, column] = windows[index]
        room = np.empty(3 * self._layers * self._size * panel, np.float32)
        out = np.zeros((columns, self._size), np.float32)
        arrays = [array.ctypes.data for array in (steps, counts, self._weights, self._biases)]
        _library().spool_lstm_windows(
            *arrays, self._width, self._size, self._layers, columns, room.ctypes.data, out.ctypes.data
        )
        outputs = np.empty((len(order), self._size), np.float32)
        outputs[order] = out[: len(order)]
        return outputs
