"""The FastConformer chunk by chunk ("Stateful Conformer with Cache-based Inference for Streaming Automatic
Speech Recognition", Noroozi et al., 2023): what is carried from one chunk to the next, and the step.

With a context of [left, right] a chunk has right + 1 frames and sees left // (right + 1) chunks before it. In
feature frames, f to an encoder frame: the first step takes 1 + f * right, each later one f * (right + 1)
behind the last f + 1 of those before, which only the subsampling reads again. Knows neither audio nor labels.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.runtime.device import on_gpu
from spool.errors import InvalidRequest
from worker.machine.blas import one_thread
from worker.models.conformer.attention import KeysValues
from worker.models.conformer.encoder import AttContext, ConformerEncoder
from worker.models.conformer.layer import LayerPast
from worker.models.mel_stream import MelStream
from worker.models.nemo.config import EncoderConfig

SMALL_PRODUCT = 4_000_000
"""Multiply-adds of a layer's largest product for one stream, below which several threads of OpenBLAS gain
nothing: at 14 frames of width 128 two took eight times the processor time of one, on two busy cores."""


class EncoderPast(NamedTuple):
    """One stream's past. layers: what each keeps, a batch of one. filled: how many of its frames were heard;
    those in front of them are no frames."""

    layers: tuple[LayerPast, ...]
    filled: int


class _Chunk(NamedTuple):
    """features [T, mels], the first `past` of them heard before."""

    features: NDArray[np.float32]
    past: int


def can_stream(config: EncoderConfig) -> bool:
    """Whether an encoder sees nothing but whole chunks and the past."""
    causal = (config.conv_kernel_size - 1, 0)
    return config.is_chunked and config.causal_downsampling and config.convolution_padding == causal


@dataclass
class EncoderStream:
    """One recording on its way: as `worker.models.streaming.FrameStream`."""

    mel: MelStream
    context: AttContext
    factor: int
    past: EncoderPast
    _features: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    _heard: int = 0
    _finished: bool = False

    def push(self, samples: NDArray[np.float32]) -> None:
        self.mel.push(np.asarray(samples, np.float32))
        self._take()

    def finish(self) -> None:
        self._finished = True
        self.mel.finish()
        self._take()

    @property
    def is_ready(self) -> bool:
        waiting = self._waiting
        return waiting >= self._wanted or (self._finished and waiting > 0)

    @property
    def has_ended(self) -> bool:
        return self._finished and self._waiting == 0

    @property
    def _wanted(self) -> int:
        right = self.context[1]
        return self.factor * (right + 1) if self._heard else 1 + self.factor * right

    @property
    def _past(self) -> int:
        """How many of the held feature frames were heard in the last step already."""
        return min(self.factor + 1, self._heard)

    @property
    def _waiting(self) -> int:
        return len(self._features) - self._past

    def _take(self) -> None:
        fresh = np.array(self.mel.take())
        self._features = np.concatenate([self._features, fresh]) if self._features.size else fresh

    @property
    def chunk_shape(self) -> tuple[int, int]:
        """How many feature frames the next step takes, and how many of these were heard before."""
        return self._past + min(self._wanted, self._waiting), self._past

    def next_chunk(self) -> _Chunk:
        """The features of the next step, which are heard with this."""
        past = self._past
        count = min(self._wanted, self._waiting)
        chunk = _Chunk(self._features[: past + count], past)
        self._heard += count
        self._features = self._features[past + count - self._past :]
        return chunk


class EncoderSteps:
    """Opens streams through one encoder, and steps them together."""

    def __init__(self, encoder: ConformerEncoder, config: EncoderConfig, dtype: mx.Dtype) -> None:
        self._encoder, self._config, self._dtype = encoder, config, dtype

    def open(self, mel: MelStream, context: AttContext) -> EncoderStream:
        """A recording at its start. Raises InvalidRequest."""
        if min(context) < 0:
            raise InvalidRequest(
                f"att_context {context[0]},{context[1]}: a stream needs a context with an end on both sides"
            )
        config = self._config
        reach, width = context[0] // (context[1] + 1) * (context[1] + 1), config.d_model
        heads = config.n_heads
        none = mx.zeros((1, heads, reach, width // heads), self._dtype)
        gated = mx.zeros((1, config.conv_kernel_size - 1, width), self._dtype)
        layers = tuple(LayerPast(KeysValues(none, none), gated) for _ in range(config.n_layers))
        return EncoderStream(mel, context, config.subsampling_factor, EncoderPast(layers, 0))

    def step(self, streams: Sequence[EncoderStream]) -> list[mx.array]:
        """As `StreamingModel.step`. A GPU takes all as one batch; a CPU those whose chunks are of one shape,
        so that nothing is padded and the bits of each are its own (`Linear`)."""
        if len({stream.context for stream in streams}) > 1:
            raise ValueError("streams of unlike contexts cannot be stepped together")
        if on_gpu() and streams:
            return self.step_together(streams)
        alike: dict[tuple[int, int], list[int]] = {}
        for place, stream in enumerate(streams):
            alike.setdefault(stream.chunk_shape, []).append(place)
        frames: dict[int, mx.array] = {}
        for places in alike.values():
            stepped = self.step_together([streams[place] for place in places])
            frames.update(zip(places, stepped, strict=True))
        return [frames[place] for place in range(len(streams))]

    def step_together(self, streams: Sequence[EncoderStream]) -> list[mx.array]:
        """As `step`, as one batch on any device."""
        with one_thread() if self._is_small(streams[0].context) else nullcontext():
            return self._step_group(streams)

    def _is_small(self, context: AttContext) -> bool:
        width = self._config.d_model
        return (context[1] + 1) * width * width * self._config.ff_expansion_factor <= SMALL_PRODUCT

    def _step_group(self, streams: Sequence[EncoderStream]) -> list[mx.array]:
        size = streams[0].context[1] + 1
        chunks = [stream.next_chunk() for stream in streams]
        frames, counts = self._subsample(chunks, size)
        past = [stream.past for stream in streams]
        reach = past[0].layers[0].attention.keys.shape[2] if past[0].layers else 0
        mask = _mask(np.array([each.filled for each in past]), counts, reach, size)
        positions = self._encoder.positions(reach + size, frames.dtype)
        kept = []
        for index, layer in enumerate(self._encoder.layers):
            before = _join_caches([each.layers[index] for each in past])
            frames, after = layer.step(frames, before, positions, mask)
            kept.append(after)
        mx.eval(frames, kept)
        for row, stream in enumerate(streams):
            layers = tuple(_row(layer, row, len(streams)) for layer in kept)
            stream.past = EncoderPast(layers, min(reach, past[row].filled + size))
        return [frames[row, :count] for row, count in enumerate(counts.tolist())]

    def _subsample(self, chunks: Sequence[_Chunk], size: int) -> tuple[mx.array, NDArray[np.int32]]:
        """Frames [B, size, d] without those that were given before, and how many each row has."""
        lengths = np.array([len(chunk.features) for chunk in chunks], np.int32)
        padded = np.zeros((len(chunks), int(lengths.max()), self._config.feat_in), np.float32)
        for row, chunk in enumerate(chunks):
            padded[row, : lengths[row]] = chunk.features
        frames = self._encoder.subsample(mx.array(padded).astype(self._dtype), lengths)
        rows, counts = [], []
        for row, chunk in enumerate(chunks):
            first = -(-chunk.past // self._config.subsampling_factor)
            end = self._encoder.pre_encode.frames_of(int(lengths[row]))
            counts.append(end - first)
            rows.append(mx.pad(frames[row, first:end], [(0, size - (end - first)), (0, 0)]))
        return mx.stack(rows), np.array(counts, np.int32)


def _mask(filled: NDArray[np.int64], counts: NDArray[np.int32], reach: int, size: int) -> mx.array:
    """[B, 1, 1, reach + size]: the heard part of the past, and the frames of the chunk."""
    place = np.arange(reach + size)
    seen = (place >= reach - filled[:, None]) & (place < reach + counts[:, None])
    return mx.array(seen[:, None, None])


def _join_caches(rows: Sequence[LayerPast]) -> LayerPast:
    """The pasts of several streams as one batch."""
    if len(rows) == 1:
        return rows[0]
    keys = mx.concatenate([row.attention.keys for row in rows])
    values = mx.concatenate([row.attention.values for row in rows])
    return LayerPast(KeysValues(keys, values), mx.concatenate([row.gated for row in rows]))


def _row(layer: LayerPast, row: int, rows: int) -> LayerPast:
    if rows == 1:
        return layer
    at = slice(row, row + 1)
    # Copies: a view would keep the whole batch alive as long as one of its streams is.
    keys, values = mx.contiguous(layer.attention.keys[at]), mx.contiguous(layer.attention.values[at])
    return LayerPast(KeysValues(keys, values), mx.contiguous(layer.gated[at]))
