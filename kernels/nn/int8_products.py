"""Products of rows with one matrix in 8-bit integers, as a function of this CPU (`int8_products.cpp`).

Each output's weights have a scale, and each row of numbers one of its own, found when it is multiplied
(symmetric, -127 to 127: the vector-wise scheme of LLM.int8, Dettmers et al. 2022, without outliers). The sums
are exact. For x86-64 with AVX-512 VNNI or AVX-VNNI, by AMX where there is one. Knows no model.
"""

import ctypes
import logging
from functools import cache
from pathlib import Path
from typing import Self

import mlx.core as mx
import numpy as np

from kernels.runtime.build_cpu import (
    FAST_FLAGS,
    BuildFailed,
    build_library,
    has_integer_products,
    thread_pool,
)
from kernels.runtime.device import Backend, backend, fresh_array, read_backend, threads_for

_log = logging.getLogger(__name__)

_SOURCE = Path(__file__).with_suffix(".cpp")
_MOST = 127
_ZERO = 128  # what the kernel adds to a row's integers
_FOUR = 4  # integers that lie side by side


def can_run() -> bool:
    """Whether kernels run as functions of this CPU, it multiplies 8-bit integers, and this kernel compiles.

    Raises BuildFailed if it does not compile though `SPOOL_KERNELS` asks for kernels.
    """
    if backend() is not Backend.CPU or not has_integer_products():
        return False
    try:
        _library()
    except BuildFailed as failure:
        if read_backend():
            raise
        _log.warning("models compute in float32, not in 8-bit integers: %s", failure)
        return False
    return True


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(build_library("int8_products", _SOURCE.read_text(), FAST_FLAGS)))
    library.spool_int8_products.argtypes = [*[ctypes.c_void_p] * 6, *[ctypes.c_int] * 4, ctypes.c_void_p]
    library.spool_int8_products.restype = None
    return library


class Int8Products:
    """x · weightᵀ + bias with the weights in the kernel's order; safe to share.

    An output's bits depend on its own row alone. A row that holds NaN or infinity gives NaN.
    """

    dtype = mx.float32

    def __init__(
        self, panels: mx.array, sums: mx.array, scale: mx.array, bias: mx.array, inputs: int, outputs: int
    ) -> None:
        """As `pack` makes them: panels int8 [P, inputs / 4, columns, 4], inputs padded; sums int32, scale and
        bias float32 [P * columns]."""
        self._panels, self._sums, self._scale, self._bias = panels, sums, scale, bias
        self._inputs, self._outputs = inputs, outputs

    @classmethod
    def pack(cls, weight: mx.array, bias: mx.array | None) -> Self:
        """weight float32 [out, in], bias [out] or None. Only where `can_run`."""
        columns = int(_library().spool_int8_products_panel())
        step = int(_library().spool_int8_products_depth())
        rows = np.asarray(weight)
        outputs, inputs = rows.shape
        largest = np.abs(rows).max(axis=1, initial=0.0)
        scale = (largest / _MOST).astype(np.float32)
        integers = np.rint(rows / np.where(scale > 0, scale, 1)[:, None]).astype(np.int8)
        padding = -outputs % columns
        padded = np.pad(integers, [(0, padding), (0, -inputs % step)])
        panels = padded.reshape(-1, columns, padded.shape[1] // _FOUR, _FOUR).transpose(0, 2, 1, 3)
        sums = _ZERO * padded.astype(np.int32).sum(axis=1, dtype=np.int32)
        added = np.zeros(outputs, np.float32) if bias is None else np.asarray(bias)
        return cls(
            mx.array(np.ascontiguousarray(panels)),
            mx.array(sums),
            mx.array(np.pad(scale, (0, padding))),
            mx.array(np.pad(added, (0, padding))),
            inputs,
            outputs,
        )

    @property
    def arrays(self) -> list[mx.array]:
        """Every array, to evaluate or to count."""
        return [self._panels, self._sums, self._scale, self._bias]

    def __call__(self, x: mx.array) -> mx.array:
        """x float32 [..., in] -> [..., out]. Waits for x."""
        rows = x.size // self._inputs
        result = fresh_array((rows, self._outputs), mx.float32)
        mx.eval(x, result)
        buffers = [
            np.ascontiguousarray(np.asarray(x)),
            *(np.asarray(each) for each in self.arrays),
            np.asarray(result),
        ]
        _library().spool_int8_products(
            *(buffer.__array_interface__["data"][0] for buffer in buffers),
            *(rows, self._inputs, self._outputs, threads_for(self._panels.nbytes)),
            thread_pool(),
        )
        return result.reshape(*x.shape[:-1], self._outputs)
