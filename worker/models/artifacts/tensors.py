"""What a reader of files gives: named tensors and their shapes."""

from collections.abc import Mapping
from typing import Protocol

import mlx.core as mx

Shape = tuple[int, ...]


class Weights(Protocol):
    """Named tensors of a file."""

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """The shape of each; of a quantised matrix, of what it stands for."""
        ...

    def read(self, name: str) -> mx.array:
        """One of them, as stored; a quantised matrix expanded."""
        ...
