"""A loaded U2 or U2++ model: samples to encoder frames, and the heads that a search drives.

Knows neither chunks nor jobs. A model belongs to the thread that made it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.models.base import (
    Ahead,
    BatchCost,
    Capabilities,
    HeadName,
    ModelFiles,
    ModelInfo,
    PreparedRequest,
    SpeechOptions,
    refuse_unsupported,
)
from worker.models.weights import default_dtype
from worker.models.wenet.artifacts import WenetArtifacts, is_wenet_folder, open_folder
from worker.models.wenet.decoder import WenetHead, decoder_of
from worker.models.wenet.encoder import WenetEncoder
from worker.models.wenet.features import feature_frames, filter_bank
from worker.models.wenet.heads import ctc_head, transducer_head
from worker.models.wenet.layers import Reader
from worker.models.wenet.streaming import LIVE_CONTEXT, WenetSteps, WenetStream

OPTIONS = frozenset({"language_model", "phrases"})


@dataclass(frozen=True, slots=True)
class Encoded:
    """Encoder frames of a batch: [B, T, d], zero past each utterance's length, and the lengths, [B] int32."""

    frames: mx.array
    lengths: NDArray[np.int32]


class WenetModel:
    """Encoder and heads of one model."""

    def __init__(self, artifacts: WenetArtifacts, dtype: mx.Dtype) -> None:
        self.name, self.files = artifacts.name, artifacts.files
        self.config, self.tokenizer, self.dtype = artifacts.config, artifacts.tokenizer, dtype
        config, reader = artifacts.config, Reader(artifacts.tensors, dtype)
        self.encoder = WenetEncoder(config.encoder, reader)
        heads: dict[HeadName, Any] = {"ctc": ctc_head(config.vocabulary, reader)}
        if config.transducer is not None:
            heads["rnnt"] = transducer_head(
                config.transducer, config.encoder.width, config.vocabulary, heads["ctc"], reader
            )
        decoders = [decoder_of(sizes, config, reader, dtype) for sizes in config.decoders]
        if decoders:
            right = decoders[1] if len(decoders) > 1 else None
            head = WenetHead(heads["ctc"], decoders[0], right, config.sos, heads.get("rnnt"))
            heads["ctc+attention"] = head
            if head.transducer is not None:
                heads["rnnt+attention"] = head
        self.heads: Mapping[HeadName, Any] = heads
        mx.eval(reader.arrays, [decoder.parameters for decoder in decoders])
        self.size = sum(array.nbytes for array in reader.arrays)
        self.info = ModelInfo(
            name=self.name,
            sha256=self.files["weights"],
            heads=tuple(sorted(heads)),
            frame_seconds=config.frame_seconds,
            device=str(mx.default_device()),
            size=self.size,
            dtype=str(dtype).removeprefix("mlx.core."),
            files=self.files,
        )
        self.capabilities = Capabilities(
            decoders=frozenset(
                {"greedy", "beam", "wfst"} | ({"rescore", "attention"} if config.decoders else set())
            ),
            languages=frozenset(),
            tasks=frozenset({"transcribe"}),
            timing="frames",
            options=OPTIONS,
            chunking=self.info.chunking,
            any_context=config.encoder.chunked,
            streams=config.encoder.chunked,
        )
        self._steps = WenetSteps(self.encoder, dtype)

    def prepare(self, options: SpeechOptions) -> PreparedRequest:
        """As `SpeechModel.prepare`: there is nothing that one may ask of this family itself."""
        refuse_unsupported(self.name, self.capabilities, options)
        return PreparedRequest(options)

    def cost(self, samples: int, beam: int = 1) -> BatchCost:
        """As `SpeechModel.cost`: the subsampling's and the layers' arrays, and what the hypotheses of a beam
        take in the decoders."""
        sizes = self.config.encoder
        frames = sizes.frames_of(feature_frames(samples))
        width, size = sizes.width, self.dtype.size
        patches = 9 * width * sizes.frames_of(80) * 2
        layers = 4 * sizes.inner + 8 * width + sizes.heads * frames
        searched = beam * (4 * sizes.inner + self.config.vocabulary) if beam > 1 else 0
        return BatchCost(frames, frames * size * (patches + layers + searched))

    @property
    def front(self) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
        """As `ModelWithFront.front`: the filter bank."""
        return filter_bank

    def features(self, samples: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        """The filter bank of each utterance, [T, 80]."""
        return [filter_bank(np.asarray(row, np.float32)) for row in samples]

    def encode(
        self,
        samples: Sequence[NDArray[np.float32]],
        att_context: tuple[int, int] | None = None,
        ahead: Ahead | None = None,
    ) -> Encoded:
        """Utterances of any lengths, each [N] float32 at 16 kHz in -1 ... 1. An utterance too short for a
        frame has length 0. att_context: attention is kept to chunks of right + 1 encoder frames and left //
        (right + 1) chunks before them."""
        if ahead is None:
            return Encoded(*self.encoder(self.features(samples), att_context))
        rows = zip(samples, ahead, strict=True)
        features = [self.features([row])[0] if made is None else made for row, made in rows]
        return Encoded(*self.encoder(features, att_context))

    def open_stream(self, att_context: tuple[int, int] | None = None) -> WenetStream:
        return self._steps.open(att_context or LIVE_CONTEXT)

    def step(self, streams: Sequence[WenetStream]) -> list[mx.array]:
        return self._steps.step(streams)


class Wenet:
    """The family of WeNet's U2, U2++ and their transducers."""

    def matches(self, files: ModelFiles) -> bool:
        return is_wenet_folder(files.path)

    def load(self, files: ModelFiles, dtype: mx.Dtype | None = None) -> WenetModel:
        return load_wenet(files.path, files.name, dtype)


def load_wenet(folder: Path, name: str, dtype: mx.Dtype | None = None) -> WenetModel:
    """Loads a model's folder. Raises UnknownModel, ModelUnreadable, WeightsMismatch."""
    return WenetModel(open_folder(folder, name), dtype or default_dtype())
