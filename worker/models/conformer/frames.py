"""From samples of a batch of utterances to encoder frames: a front end and the encoder behind it.

Knows neither labels nor files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.models.base import Ahead
from worker.models.conformer.encoder import AttContext, ConformerEncoder

BYTES_A_FRAME = 40_000
"""A feature frame costs 20 kB on its way through the largest encoder in float32
(`ops.bench.memory.frame`); MLX's cache of buffers keeps about as much again."""


@dataclass(frozen=True, slots=True)
class EncodedFrames:
    """Encoder frames of a batch: [B, T, d_model] in the model's dtype, zero past each utterance's length, and
    the lengths, [B] int32."""

    frames: mx.array
    lengths: NDArray[np.int32]


class FrontEnd(Protocol):
    """Makes features of samples."""

    def frames_of(self, samples: int) -> int:
        """How many feature frames that many samples give."""

    def batch(
        self, samples: Sequence[NDArray[np.float32]], ahead: Ahead | None = None, /
    ) -> tuple[mx.array, NDArray[np.int32]]:
        """Utterances of [N] float32 each -> [B, T, bands] float32, zeros past the frames of each, and how
        many these are, int32 [B]. `ahead`: what `ModelWithFront.front` has made of each already, or None."""


Front = TypeVar("Front", bound=FrontEnd)


@dataclass(frozen=True, slots=True)
class FrameEncoder(Generic[Front]):
    """Front end and encoder of one model, which computes in `dtype`."""

    front_end: Front
    encoder: ConformerEncoder
    dtype: mx.Dtype

    def frames_of(self, samples: int) -> int:
        """How many encoder frames that many samples give."""
        return self.encoder.pre_encode.frames_of(self.front_end.frames_of(samples))

    def features(
        self, samples: Sequence[NDArray[np.float32]], ahead: Ahead | None = None
    ) -> tuple[mx.array, NDArray[np.int32]]:
        return self.front_end.batch([np.asarray(row, np.float32) for row in samples], ahead)

    def encode(
        self,
        samples: Sequence[NDArray[np.float32]],
        context: AttContext | None = None,
        ahead: Ahead | None = None,
    ) -> EncodedFrames:
        """Utterances of any lengths, each [N] float32 at 16 kHz in -1 ... 1. An utterance too short for a
        frame has length 0. An empty batch gives an empty result. context: as
        `ConformerEncoder` takes it. ahead: as `features`."""
        if not samples or max(self.frames_of(len(row)) for row in samples) == 0:
            frames = mx.zeros((len(samples), 0, self.encoder.width), dtype=self.dtype)
            return EncodedFrames(frames, np.zeros(len(samples), np.int32))
        return self.encode_features(*self.features(samples, ahead), context)

    def encode_features(
        self, features: mx.array, lengths: NDArray[np.int32], context: AttContext | None = None
    ) -> EncodedFrames:
        """What `features` gave, encoded."""
        frames, counts = self.encoder(features, lengths, context)
        return EncodedFrames(frames, counts)
