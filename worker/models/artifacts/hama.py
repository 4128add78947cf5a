"""Named tensors of a `.hama` file, the packed weights of the package of that name (1.7.0).

Little-endian: `HAMAPK`, version, kind, u32 count; then of each tensor its name (u16 length), dtype, rank,
dimensions (u32), offset and length in bytes (u64); zeros up to a multiple of 16; then the data, which offsets
count from.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spool.errors import ModelUnreadable
from worker.models.weights import Shape

MAGIC = b"HAMAPK\x01"
ALIGNMENT = 16
FILE_BYTES_MAX = 256 << 20
_TYPES: dict[int, np.dtype[Any]] = {0: np.dtype("<f4"), 1: np.dtype("<f2")}


@dataclass(frozen=True, slots=True)
class HamaTensors:
    """The tensors of a file."""

    tensors: Mapping[str, NDArray[np.float32]]

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """The shape of each."""
        return {name: tensor.shape for name, tensor in self.tensors.items()}

    def read(self, name: str) -> mx.array:
        """One of them, float32."""
        return mx.array(self.tensors[name])


def read_hama(path: Path) -> HamaTensors:
    """Reads a file. Raises ModelUnreadable."""
    try:
        size = path.stat().st_size
        if size > FILE_BYTES_MAX:
            raise ModelUnreadable(f"{path}: {size:,} bytes, more than {FILE_BYTES_MAX:,}")
        data = path.read_bytes()
    except OSError as cause:
        raise ModelUnreadable(f"{path}: the weights cannot be read: {cause.strerror}") from cause
    if not data.startswith(MAGIC):
        raise ModelUnreadable(f"{path}: not a file of packed weights of version 1 (HAMAPK)")
    try:
        return HamaTensors(_tensors(data))
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as cause:
        raise ModelUnreadable(f"{path}: truncated or damaged: {cause}") from cause


def _tensors(data: bytes) -> dict[str, NDArray[np.float32]]:
    (count,) = struct.unpack_from("<I", data, 8)
    at, entries = 12, []
    for _ in range(count):
        (length,) = struct.unpack_from("<H", data, at)
        name = data[at + 2 : at + 2 + length].decode()
        at += 2 + length
        kind, rank = data[at], data[at + 1]
        shape: Shape = struct.unpack_from(f"<{rank}I", data, at + 2)
        offset, size = struct.unpack_from("<QQ", data, at + 2 + 4 * rank)
        at += 18 + 4 * rank
        entries.append((name, kind, shape, offset, size))
    start = -(-at // ALIGNMENT) * ALIGNMENT
    tensors = {}
    for name, kind, shape, offset, size in entries:
        if kind not in _TYPES:
            raise ValueError(f"{name} has the unknown type {kind}")
        numbers = int(np.prod(shape, dtype=object))
        if numbers * _TYPES[kind].itemsize != size:
            raise ValueError(f"{name} has {size} bytes, which {list(shape)} does not")
        if start + offset + size > len(data):
            raise ValueError(f"{name} lies beyond the end of the file")
        values = np.frombuffer(data, _TYPES[kind], numbers, start + offset)
        tensors[name] = values.reshape(shape).astype(np.float32)
    return tensors
