"""Named tensors of safetensors files, and the digest of any file. Knows no names of weights."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from spool.errors import ModelUnreadable
from worker.models.artifacts.grouped import GROUPED, open_groups
from worker.models.artifacts.tensors import Shape
from worker.models.artifacts.tensors import Weights as Weights
from worker.models.configuration import read_json

INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
QUANTIZATION = "quantization"


class StoredTensors:
    """The tensors of a file, or of all files that an index names. MLX reads each when it is first used, and
    whoever asked for it keeps it: one that is asked for again is read again."""

    def __init__(self, path: Path, tensors: Mapping[str, mx.array]) -> None:
        """tensors: those of `load_tensors`, none read."""
        self._path, self._tensors = path, dict(tensors)
        self._shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """The shape of each."""
        return self._shapes

    def read(self, name: str) -> mx.array:
        """One of them, as stored."""
        if name not in self._tensors:
            self._tensors = load_tensors(self._path)[0]
        return self._tensors.pop(name)


@dataclass(frozen=True, slots=True)
class Safetensors:
    """Named tensors in memory."""

    tensors: Mapping[str, mx.array]

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """The shape of each."""
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}

    def read(self, name: str) -> mx.array:
        """One of them, as stored."""
        return self.tensors[name]


def read_tensors(path: Path) -> Weights:
    """The tensors of a file of named tensors, or of all files that an index names. Where MLX quantised some
    in groups, config.json beside them says how, or else the file itself (`QUANTIZATION` of its metadata).

    Raises ModelUnreadable, and WeightsMismatch where they are not quantised as stated.
    """
    tensors, metadata = load_tensors(path)
    is_grouped = any(name.endswith(GROUPED) for name in tensors)
    stated = _quantization(path.parent / CONFIG, metadata) if is_grouped else None
    return open_groups(StoredTensors(path, tensors), stated, str(path))


def load_tensors(path: Path) -> tuple[dict[str, mx.array], dict[str, str]]:
    """Tensors as they are stored, and the metadata of their files. Raises ModelUnreadable."""
    parts = [path]
    if path.name == INDEX:
        named = read_json(path).get("weight_map")
        if not isinstance(named, dict):
            raise ModelUnreadable(f"{path}: names no files of weights")
        parts = [path.parent / Path(str(name)).name for name in sorted(set(named.values()))]
    tensors: dict[str, mx.array] = {}
    metadata: dict[str, str] = {}
    for part in parts:
        own, about = _load(part)
        tensors |= own
        metadata |= about
    return tensors, metadata


def _quantization(config: Path, metadata: Mapping[str, str]) -> object:
    stated = read_json(config).get(QUANTIZATION) if config.is_file() else None
    try:
        return stated or json.loads(metadata.get(QUANTIZATION, "null"))
    except ValueError:
        return None


def _load(path: Path) -> tuple[dict[str, mx.array], dict[str, str]]:
    """Tensors and metadata of a file."""
    if not path.is_file():
        raise ModelUnreadable(f"{path}: the weights are missing")
    try:
        loaded = mx.load(str(path), return_metadata=path.suffix == ".safetensors")
    except (RuntimeError, ValueError, OSError) as cause:
        raise ModelUnreadable(f"{path}: the weights cannot be read: {cause}") from cause
    tensors: Any = loaded
    metadata: Any = {}
    if isinstance(loaded, tuple):
        tensors, metadata = loaded
    if not isinstance(tensors, dict) or not tensors:
        raise ModelUnreadable(f"{path}: holds no named tensors")
    return tensors, metadata


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
