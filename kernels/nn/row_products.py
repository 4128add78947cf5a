"""Products of rows with one matrix over and over, as a function of this CPU (`row_products.cpp`).

A BLAS packs the matrix anew in each call. A step of a decoder multiplies some 5 to 50 rows with every weight
of the model, and packing costs more than such a product; an encoder's hundreds of rows still gain some
percent. Here a matrix is packed once, and read once for all rows. What
16 bits hold exactly lies in 16 bits and is multiplied in 32, so that half as much is read. For x86-64 with
AVX2 or AVX-512. Knows no model.
"""

import ctypes
import platform
from functools import cache
from pathlib import Path
from typing import Self

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.runtime.build_cpu import FAST_FLAGS, build_library, cpu_model, thread_pool
from kernels.runtime.device import Backend, backend, fresh_array, threads_for

Floats = NDArray[np.float32]

_SOURCE = Path(__file__).with_suffix(".cpp")
# A column's largest weight becomes one of 2^14 to 2^15: halves go to 65504, and far below it are as exact.
_LARGEST_EXPONENT = 15
_ROWS, _PANELS = 4096, 256  # that are looked at, or written, at once


def can_run() -> bool:
    """Whether kernels run as functions of this CPU, and it has the instructions."""
    flags = cpu_model().split()
    has_instructions = all(name in flags for name in ("avx2", "fma", "f16c"))
    return backend() is Backend.CPU and platform.machine() == "x86_64" and has_instructions


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(build_library("row_products", _SOURCE.read_text(), FAST_FLAGS)))
    library.spool_row_products.argtypes = [*[ctypes.c_void_p] * 5, *[ctypes.c_int] * 5, ctypes.c_void_p]
    library.spool_row_products.restype = None
    return library


class RowProducts:
    """x · weightᵀ + bias with the weights in the kernel's order; safe to share.

    An output is the sum over the inputs in their order: its bits depend on its own row alone.
    """

    dtype = mx.float32

    def __init__(self, panels: mx.array, scale: mx.array, bias: mx.array, outputs: int) -> None:
        """As `pack` makes them: panels float16 or float32 [P, in, columns], scale and bias float32
        [P * columns]."""
        self._panels, self._scale, self._bias, self._outputs = panels, scale, bias, outputs

    @classmethod
    def pack(cls, weight: mx.array, bias: mx.array | None) -> Self:
        """weight float32 [out, in], bias [out] or None. Raises BuildFailed."""
        columns = int(_library().spool_row_products_panel())
        rows = np.asarray(weight)
        outputs, inputs = rows.shape
        scale = _powers(rows)
        exact = _fit_halves(rows, scale)
        whole, padding = outputs // columns, -outputs % columns
        panels = fresh_array((whole + (padding > 0), inputs, columns), mx.float16 if exact else mx.float32)
        mx.eval(panels)
        # In place: of a large vocabulary's rows every copy is as large as some models.
        written = np.asarray(panels)
        for first in range(0, outputs, columns * _PANELS):
            part = rows[first : first + columns * _PANELS]
            if exact:
                part = part * scale[first : first + len(part), None]
            part = np.pad(part, [(0, -len(part) % columns), (0, 0)])
            at = first // columns
            written[at : at + len(part) // columns] = part.reshape(-1, columns, inputs).transpose(0, 2, 1)
        undone = np.pad(1 / scale if exact else np.ones(outputs, np.float32), (0, padding))
        added = np.pad(np.zeros(outputs, np.float32) if bias is None else np.asarray(bias), (0, padding))
        return cls(panels, mx.array(undone), mx.array(added), outputs)

    @property
    def arrays(self) -> list[mx.array]:
        """Every array, to evaluate or to count."""
        return [self._panels, self._scale, self._bias]

    def __call__(self, x: mx.array) -> mx.array:
        """x float32 [..., in] -> [..., out]. Waits for x."""
        rows = x.size // x.shape[-1]
        inputs = self._panels.shape[1]
        result = fresh_array((rows, self._outputs), mx.float32)
        mx.eval(x, result)
        entering = np.ascontiguousarray(np.asarray(x))
        halves = self._panels.dtype == mx.float16
        buffers = [
            entering,
            np.asarray(self._panels),
            np.asarray(self._scale),
            np.asarray(self._bias),
            np.asarray(result),
        ]
        _library().spool_row_products(
            *(buffer.__array_interface__["data"][0] for buffer in buffers),
            *(rows, inputs, self._outputs, halves, threads_for(self._panels.nbytes)),
            thread_pool(),
        )
        return result.reshape(*x.shape[:-1], self._outputs)

    def of_outputs(self, outputs: mx.array) -> mx.array:
        """The weights of these outputs, int32 [N] -> [N, in]."""
        columns = self._panels.shape[2]
        chosen = self._panels[outputs // columns, :, outputs % columns]
        return chosen.astype(mx.float32) * self._scale[outputs][:, None]


def _fit_halves(rows: Floats, scale: Floats) -> bool:
    """Whether 16 bits hold every scaled weight exactly."""
    for first in range(0, len(rows), _ROWS):
        part = rows[first : first + _ROWS] * scale[first : first + _ROWS, None]
        if not (part.astype(np.float16) == part).all():
            return False
    return True


def _powers(rows: Floats) -> Floats:
    """The power of two for each row that brings its largest number to 2^14 to 2^15."""
    largest = np.maximum(rows.max(axis=1, initial=0.0), -rows.min(axis=1, initial=0.0))
    _, exponents = np.frexp(np.where(np.isfinite(largest) & (largest > 0), largest, 1.0))
    powers: Floats = np.ldexp(np.float32(1), np.clip(_LARGEST_EXPONENT - exponents, -100, 100))
    return powers
