"""Reads a safetensors file of float32 tensors into numpy, for small networks in processes without MLX.

Supports only what the networks in `worker/networks/` need; `worker.models` loads every other model.
"""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spool.errors import ModelUnreadable

NETWORKS = Path(__file__).parents[1] / "networks"
"""The networks that come with Spool, inside the package so that a wheel includes them."""

Tensors = dict[str, NDArray[np.float32]]


def read_float32(path: Path) -> Tensors:
    """All tensors of the file by name. Raises ModelUnreadable."""
    try:
        content = path.read_bytes()
        (size,) = struct.unpack_from("<Q", content)
        header = json.loads(content[8 : 8 + size])
        header.pop("__metadata__", None)
        tensors = {name: _tensor(content, 8 + size, entry) for name, entry in header.items()}
    except OSError as cause:
        raise ModelUnreadable(f"{path}: the weights cannot be read: {cause.strerror}") from cause
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as cause:
        raise ModelUnreadable(f"{path}: not a safetensors file of float32 tensors: {cause}") from cause
    return tensors


def _tensor(content: bytes, base: int, entry: dict[str, Any]) -> NDArray[np.float32]:
    if entry["dtype"] != "F32":
        raise ValueError(f"a tensor is stored as {entry['dtype']}")
    first, last = entry["data_offsets"]
    return np.frombuffer(content[base + first : base + last], dtype="<f4").reshape(entry["shape"])
