"""Reads a safetensors file of float32 tensors into numpy: small networks run in processes without MLX too.

Owns the file's format as far as the networks in `models/` need it; leaves every other model to
`worker.models`.
"""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spool.errors import ModelUnreadable

NETWORKS = Path(__file__).parents[1] / "networks"
"""The networks that come with Spool, inside the package so that a wheel has them."""

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
