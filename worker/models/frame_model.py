"""What models whose heads go over a Conformer's frames have in common, whatever their heads are.

Knows nothing of files nor of search (`worker.decode`). A model belongs to the thread that made it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from numpy.typing import NDArray

from worker.models.base import Ahead, PreparedRequest, refuse_unsupported
from worker.models.conformer.encoder import AttContext
from worker.models.conformer.frames import EncodedFrames, FrameEncoder
from worker.models.conformer.streaming import EncoderSteps, EncoderStream
from worker.models.loaded import LoadedModel
from worker.models.requests import DecodeRequest
from worker.models.weights import parameter_bytes


class FrameModel(LoadedModel):
    """One loaded model: network, front end and names. A family adds `heads`, `capabilities`, `cost`, `front`
    and `open_stream`."""

    def __init__(
        self,
        network: nn.Module,
        frames: FrameEncoder[Any],
        *,
        name: str,
        files: Mapping[str, str],
        frame_seconds: float,
    ) -> None:
        self.name, self.files, self.frame_seconds = name, dict(files), frame_seconds
        self.network, self.frames = network, frames
        self.front_end, self.dtype = frames.front_end, frames.dtype
        self._steps = EncoderSteps(frames.encoder, frames.dtype)

    @property
    def size(self) -> int:
        return parameter_bytes(self.network)

    def prepare(self, options: DecodeRequest) -> PreparedRequest:
        """As `SpeechModel.prepare`: there is nothing that one may ask of such a family itself."""
        refuse_unsupported(self.name, self.capabilities, options)
        return PreparedRequest(options)

    def frames_of(self, samples: int) -> int:
        """How many encoder frames that many samples give."""
        return self.frames.frames_of(samples)

    def features(self, samples: Sequence[NDArray[np.float32]]) -> tuple[mx.array, NDArray[np.int32]]:
        return self.frames.features(samples)

    def encode(
        self,
        samples: Sequence[NDArray[np.float32]],
        att_context: AttContext | None = None,
        ahead: Ahead | None = None,
    ) -> EncodedFrames:
        return self.frames.encode(samples, att_context, ahead)

    def encode_features(
        self, features: mx.array, lengths: NDArray[np.int32], att_context: AttContext | None = None
    ) -> EncodedFrames:
        return self.frames.encode_features(features, lengths, att_context)

    def step(self, streams: Sequence[EncoderStream]) -> list[mx.array]:
        return self._steps.step(streams)
