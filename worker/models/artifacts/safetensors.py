"""Named tensors of safetensors files, and the digest of any file. Knows no names of weights."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import mlx.core as mx

from spool.errors import ModelUnreadable
from worker.models.configuration import read_json
from worker.models.weights import Shape

INDEX = "model.safetensors.index.json"


class Weights(Protocol):
    """Named tensors of a file."""

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """The shape of each."""
        ...

    def read(self, name: str) -> mx.array:
        """One of them, as stored."""
        ...


@dataclass(frozen=True, slots=True)
class Safetensors:
    """The tensors of a safetensors file; MLX reads each when it is first used."""

    tensors: Mapping[str, mx.array]

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """The shape of each."""
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}

    def read(self, name: str) -> mx.array:
        """One of them, as stored."""
        return self.tensors[name]


def read_tensors(path: Path) -> Safetensors:
    """The tensors of a file of named tensors, or of all files that an index names. Raises ModelUnreadable."""
    if path.name != INDEX:
        return Safetensors(_load(path))
    parts = read_json(path).get("weight_map")
    if not isinstance(parts, dict):
        raise ModelUnreadable(f"{path}: names no files of weights")
    tensors: dict[str, mx.array] = {}
    for name in sorted(set(parts.values())):
        tensors |= _load(path.parent / Path(str(name)).name)
    return Safetensors(tensors)


def _load(path: Path) -> dict[str, mx.array]:
    if not path.is_file():
        raise ModelUnreadable(f"{path}: the weights are missing")
    try:
        loaded = mx.load(str(path))
    except (RuntimeError, ValueError, OSError) as cause:
        raise ModelUnreadable(f"{path}: the weights cannot be read: {cause}") from cause
    if not isinstance(loaded, dict) or not loaded:
        raise ModelUnreadable(f"{path}: holds no named tensors")
    return loaded


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
