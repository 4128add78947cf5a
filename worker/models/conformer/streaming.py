"""The encoder chunk by chunk ("Stateful Conformer with Cache-based Inference for Streaming Automatic Speech
Recognition", Noroozi et al., 2023; Zhang et al. 2020): what is carried from one chunk to the next, and the
step.

With a context of [left, right] a chunk has right + 1 frames and sees left // (right + 1) chunks before it. In
feature frames, f to an encoder frame: the first step takes f * right beside what the first frame needs, each
later one f * (right + 1) behind the last of those before, which only the subsampling reads again (`Windows`).
Knows neither audio nor labels.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.runtime.device import on_gpu
from spool.errors import InvalidRequest
from worker.machine.blas import one_thread
from worker.models.conformer.attention import Positions
from worker.models.conformer.encoder import AttContext, ConformerEncoder
from worker.models.conformer.layer import ConformerLayer, LayerPast
from worker.models.conformer.subsampling import Windows

SMALL_PRODUCT = 4_000_000
"""Multiply-adds of a layer's largest product for one stream, below which several threads of OpenBLAS gain
nothing: at 14 frames of width 128 two took eight times the processor time of one, on two busy cores."""


class FeatureStream(Protocol):
    """The features of a recording that is still coming in, each as soon as no later sample can change it."""

    def push(self, samples: NDArray[np.float32]) -> None:
        """The next samples, [N] float32. Raises ValueError behind the end."""

    def finish(self) -> None:
        """No sample comes after this."""

    def take(self) -> mx.array | NDArray[np.float32]:
        """The features that are final and were not given yet, [n, bands] float32."""


class EncoderPast(NamedTuple):
    """One stream's past. layers: what each keeps, a batch of one. given: how many frames were heard; of the
    layers' past as many are filled, those in front of them are no frames."""

    layers: tuple[LayerPast, ...]
    given: int


class _Chunk(NamedTuple):
    """features [T, mels], the first `past` of them heard before."""

    features: NDArray[np.float32]
    past: int


@dataclass
class EncoderStream:
    """One recording on its way: as `worker.models.streaming.FrameStream`."""

    mel: FeatureStream
    context: AttContext
    factor: int
    windows: Windows
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
        return self._waiting >= (self._least if self._finished else self._wanted)

    @property
    def has_ended(self) -> bool:
        return self._finished and self._waiting < self._least

    @property
    def _wanted(self) -> int:
        right = self.context[1]
        return self.factor * (right + 1) if self._heard else self.windows.first + self.factor * right

    @property
    def _least(self) -> int:
        """New features that give a frame."""
        return self.windows.least if self._heard else self.windows.first

    @property
    def _past(self) -> int:
        """How many of the held feature frames were heard in the last step already."""
        return min(self.windows.past, self._heard)

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

    def __init__(self, encoder: ConformerEncoder, dtype: mx.Dtype) -> None:
        self._encoder, self._config, self._dtype = encoder, encoder.config, dtype

    def open(self, mel: FeatureStream, context: AttContext) -> EncoderStream:
        """A recording at its start. Raises InvalidRequest."""
        if min(context) < 0:
            raise InvalidRequest(
                f"att_context {context[0]},{context[1]}: a stream needs a context with an end on both sides"
            )
        reach = context[0] // (context[1] + 1) * (context[1] + 1)
        past = EncoderPast(tuple(layer.begin(reach, self._dtype) for layer in self._layers), 0)
        windows = self._encoder.pre_encode.windows
        return EncoderStream(mel, context, self._config.subsampling_factor, windows, past)

    @property
    def _layers(self) -> list[ConformerLayer]:
        return [layer for layer in self._encoder.layers if isinstance(layer, ConformerLayer)]

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
        return (context[1] + 1) * self._config.d_model * self._config.feed_forward_size <= SMALL_PRODUCT

    def _step_group(self, streams: Sequence[EncoderStream]) -> list[mx.array]:
        size = streams[0].context[1] + 1
        chunks = [stream.next_chunk() for stream in streams]
        frames, counts = self._subsample(chunks, size)
        past = [stream.past for stream in streams]
        reach = past[0].layers[0].attention[0].shape[2] if past[0].layers else 0
        given = np.array([each.given for each in past])
        positions, mask = self._sight(given, counts, reach, frames)
        kept = []
        for index, layer in enumerate(self._layers):
            before = _join_caches([each.layers[index] for each in past])
            frames, after = layer.step(frames, before, positions, mask)
            kept.append(after)
        frames = self._encoder.finish(frames)
        mx.eval(frames, kept)
        for row, stream in enumerate(streams):
            layers = tuple(_row(layer, row, len(streams)) for layer in kept)
            stream.past = EncoderPast(layers, past[row].given + int(counts[row]))
        return [frames[row, :count] for row, count in enumerate(counts.tolist())]

    def _sight(
        self, given: NDArray[np.int64], counts: NDArray[np.int32], reach: int, frames: mx.array
    ) -> tuple[Positions, mx.array]:
        """Positions of what chunks [B, C, d] see, and the mask [B, 1, 1, reach + C] over the heard part of
        their past and the frames of the chunk."""
        size = frames.shape[1]
        place = np.arange(reach + size)
        seen = (place >= reach - given[:, None]) & (place < reach + counts[:, None])
        seen = seen[:, None, None]
        if self._config.is_shifted:
            return self._encoder.positions(reach + size, frames.dtype), mx.array(seen)
        positions = self._encoder.positions_at(given[:, None] + np.arange(size), frames.dtype)
        return positions, mx.array(np.where(seen, 0.0, -np.inf).astype(np.float32))

    def _subsample(self, chunks: Sequence[_Chunk], size: int) -> tuple[mx.array, NDArray[np.int32]]:
        """Frames [B, size, d] without those that were given before, and how many each row has."""
        lengths = np.array([len(chunk.features) for chunk in chunks], np.int32)
        padded = np.zeros((len(chunks), int(lengths.max()), self._config.feat_in), np.float32)
        for row, chunk in enumerate(chunks):
            padded[row, : lengths[row]] = chunk.features
        frames = self._encoder.subsample(mx.array(padded), lengths)
        rows, counts = [], []
        for row, chunk in enumerate(chunks):
            first = self._encoder.pre_encode.frames_of(chunk.past)
            end = self._encoder.pre_encode.frames_of(int(lengths[row]))
            counts.append(end - first)
            rows.append(mx.pad(frames[row, first:end], [(0, size - (end - first)), (0, 0)]))
        return mx.stack(rows), np.array(counts, np.int32)


def _join_caches(rows: Sequence[LayerPast]) -> LayerPast:
    """The pasts of several streams as one batch."""
    if len(rows) == 1:
        return rows[0]
    attention = (mx.concatenate(list(parts)) for parts in zip(*(row.attention for row in rows), strict=True))
    return LayerPast(tuple(attention), mx.concatenate([row.convolution for row in rows]))


def _row(layer: LayerPast, row: int, rows: int) -> LayerPast:
    if rows == 1:
        return layer
    at = slice(row, row + 1)
    # Copies: a view would keep the whole batch alive as long as one of its streams is.
    attention = tuple(mx.contiguous(part[at]) for part in layer.attention)
    return LayerPast(attention, mx.contiguous(layer.convolution[at]))
