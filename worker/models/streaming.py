"""The face of a model that can hear a recording while it comes in: chunk by chunk, with state.

Owns the protocols. What a chunk is and what is carried from one to the next is the family's business; what is
made of the frames is `worker.decode.live`'s.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spool.errors import InvalidRequest
from worker.models.base import SpeechModel

if TYPE_CHECKING:
    import mlx.core as mx

AttContext = tuple[int, int]
"""Encoder frames to the left and to the right."""


class FrameStream(Protocol):
    """One recording on its way through an encoder."""

    @property
    def context(self) -> AttContext:
        """The attention context that it is heard with."""

    @property
    def is_ready(self) -> bool:
        """Whether enough was heard for a step."""

    @property
    def has_ended(self) -> bool:
        """Whether it was finished and every frame of it was given."""

    def push(self, samples: NDArray[np.float32]) -> None:
        """The next samples, [N] float32 at 16 kHz in -1 … 1. Raises ValueError behind the end."""

    def finish(self) -> None:
        """No sample comes after this."""


class StreamingModel(SpeechModel, Protocol):
    """A model with `Capabilities.streams`."""

    def open_stream(self, att_context: AttContext | None = None) -> FrameStream:
        """A recording at its start; None is the model's default context. Raises InvalidRequest."""

    def step(self, streams: Sequence[Any]) -> "list[mx.array]":
        """One step of each stream: its next encoder frames, [n, d_model], n at most the chunk's.

        All must be ready and of one context; they may be of any age. The frames of a stream are those that
        `encode` gives for its whole recording under the same context (float32: within 1e-5), and do not
        depend on its neighbours.
        """


def require_streaming(model: SpeechModel) -> StreamingModel:
    """The model, where it can hear a recording while it comes in. Raises InvalidRequest."""
    if not model.capabilities.streams:
        raise InvalidRequest(
            f"{model.info.name} cannot be run chunk by chunk; it takes a cache-aware model, or one "
            "of WeNet's that was trained in chunks"
        )
    return model  # type: ignore[return-value]
