"""What a reader of files gives: named tensors and their shapes."""

import re
from collections.abc import Mapping
from typing import Protocol

import mlx.core as mx

Shape = tuple[int, ...]
Renames = tuple[tuple[str, str], ...]


def rename(name: str, renames: Renames) -> str:
    """A name with patterns replaced, one after another."""
    for pattern, replacement in renames:
        name = re.sub(pattern, replacement, name)
    return name


class Weights(Protocol):
    """Named tensors of a file."""

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """The shape of each; of a quantised matrix, of what it stands for."""
        ...

    def read(self, name: str) -> mx.array:
        """One of them, as stored; a quantised matrix expanded."""
        ...
