"""What every loaded model says of itself, whatever its network is."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import mlx.core as mx

from worker.models.base import Capabilities, HeadName, Independent, ModelInfo
from worker.models.weights import precision


class LoadedModel:
    """`files` are SHA-256 by role; `bits`: as `ModelInfo` has it. A family adds what has no default, and
    `cost` and `encode`."""

    name: str
    files: Mapping[str, str]
    dtype: mx.Dtype
    frame_seconds: float
    bits: int | None = None

    @property
    def heads(self) -> Mapping[HeadName, Any]:
        raise NotImplementedError

    @property
    def capabilities(self) -> Capabilities:
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Bytes of the weights in memory."""
        raise NotImplementedError

    @property
    def chunking(self) -> Independent:
        """How recordings are cut for it."""
        return Independent()

    @cached_property
    def info(self) -> ModelInfo:
        """Which weights these are."""
        return ModelInfo(
            name=self.name,
            sha256=self.files["weights"],
            heads=tuple(sorted(self.heads)),
            frame_seconds=self.frame_seconds,
            size=self.size,
            files=dict(self.files),
            chunking=self.chunking,
            bits=self.bits,
            **precision(self.dtype),
        )
