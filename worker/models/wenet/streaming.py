"""U2 and U2++ chunk by chunk (Zhang et al. 2020): what is carried from one chunk to the next, and the step.

With a context of [left, right] a chunk has right + 1 frames and sees left // (right + 1) chunks before it.
Windows of features overlap by what the subsampling reads beyond its stride. Positions count from the
stream's start, so every key keeps its own and none is computed twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.runtime.device import on_gpu
from spool.errors import InvalidRequest
from worker.models.wenet.config import FEATURES, EncoderSizes
from worker.models.wenet.encoder import ConformerLayer, LayerPast, PastKeys
from worker.models.wenet.features import FilterBankStream
from worker.models.wenet.layers import sinusoids

if TYPE_CHECKING:
    from worker.models.wenet.encoder import WenetEncoder

LIVE_CONTEXT = (128, 15)
"""Chunks of 16 frames, as WeNet's runtime has them, and 8 of them behind."""


@dataclass
class WenetStream:
    """One recording on its way: as `worker.models.streaming.FrameStream`. layers: what each layer keeps, a
    batch of one. given: the frames so far, of which as many as fit are in the layers' past."""

    context: tuple[int, int]
    sizes: EncoderSizes
    layers: tuple[LayerPast, ...]
    given: int = 0
    _mel: FilterBankStream = field(default_factory=FilterBankStream)
    _features: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, FEATURES), np.float32))
    _finished: bool = False

    def push(self, samples: NDArray[np.float32]) -> None:
        if self._finished:
            raise ValueError("the recording has ended; nothing can be pushed behind its end")
        self._features = np.concatenate([self._features, self._mel.push(samples)])

    def finish(self) -> None:
        self._finished = True

    @property
    def is_ready(self) -> bool:
        frames = self.sizes.frames_of(len(self._features))
        return frames > self.context[1] or (self._finished and frames > 0)

    @property
    def has_ended(self) -> bool:
        return self._finished and self.sizes.frames_of(len(self._features)) == 0

    def next_window(self) -> NDArray[np.float32]:
        """The features of the next step, which are heard with this."""
        size, rate = self.context[1] + 1, self.sizes.rate
        needed = next(count for count in range(rate, 64 * rate) if self.sizes.frames_of(count))
        window = self._features[: (size - 1) * rate + needed]
        self._features = self._features[size * rate :]
        return window


class WenetSteps:
    """Opens streams through one encoder, and steps them together."""

    def __init__(self, encoder: "WenetEncoder", dtype: mx.Dtype) -> None:
        self._encoder, self._dtype = encoder, dtype

    def open(self, context: tuple[int, int]) -> WenetStream:
        """A recording at its start. Raises InvalidRequest."""
        sizes = self._encoder.sizes
        if not sizes.chunked or min(context) < 0:
            raise InvalidRequest(
                f"att_context {context[0]},{context[1]}: a stream needs a model that was trained in chunks, "
                "and a context with an end on both sides"
            )
        reach = context[0] // (context[1] + 1) * (context[1] + 1)
        none = mx.zeros((1, sizes.heads, reach, sizes.width // sizes.heads), self._dtype)
        past = PastKeys(none, none, mx.zeros((1, sizes.heads, 1, reach)))
        layers = tuple(LayerPast(past, layer.begin()) for layer in self._layers())
        return WenetStream(context, sizes, layers)

    def _layers(self) -> list[ConformerLayer]:
        return [layer for layer in self._encoder.layers if isinstance(layer, ConformerLayer)]

    def step(self, streams: Sequence[WenetStream]) -> list[mx.array]:
        """As `StreamingModel.step`. On a CPU each stream by itself, so that its bits are its own; a GPU takes
        them as one batch."""
        if len({stream.context for stream in streams}) > 1:
            raise ValueError("streams of unlike contexts cannot be stepped together")
        if on_gpu() and streams:
            return self.step_together(streams)
        return [self.step_together([stream])[0] for stream in streams]

    def step_together(self, streams: Sequence[WenetStream]) -> list[mx.array]:
        """As `step`, as one batch on any device."""
        sizes, size = self._encoder.sizes, streams[0].context[1] + 1
        windows = [stream.next_window() for stream in streams]
        counts = np.array([sizes.frames_of(len(window)) for window in windows])
        padded = np.zeros((len(windows), max(map(len, windows)), FEATURES), np.float32)
        for row, window in enumerate(windows):
            padded[row, : len(window)] = window
        x = self._encoder.subsample(mx.array(padded))
        given = np.array([stream.given for stream in streams])
        places = mx.array(given[:, None] + np.arange(x.shape[1]))
        positions = sinusoids(places, sizes.width).astype(self._dtype)
        reach = streams[0].layers[0].attention.keys.shape[2]
        place = np.arange(reach + x.shape[1])
        seen = (place >= reach - given[:, None]) & (place < reach + counts[:, None])
        hidden = mx.array(np.where(seen, 0.0, -np.inf).astype(np.float32)[:, None, None])
        kept = []
        for index, layer in enumerate(self._layers()):
            before = _join_caches([stream.layers[index] for stream in streams])
            x, after = layer.step(x, before, positions, hidden)
            kept.append(after)
        x = self._encoder.finish(x)
        mx.eval(x, kept)
        for row, stream in enumerate(streams):
            stream.layers = tuple(_row(layer, row, len(streams)) for layer in kept)
            stream.given += min(size, int(counts[row]))
        return [x[row, :count] for row, count in enumerate(counts.tolist())]


def _join_caches(rows: Sequence[LayerPast]) -> LayerPast:
    """The pasts of several streams as one batch."""
    if len(rows) == 1:
        return rows[0]
    attention = PastKeys(
        mx.concatenate([row.attention.keys for row in rows]),
        mx.concatenate([row.attention.values for row in rows]),
        mx.concatenate([row.attention.own for row in rows]),
    )
    return LayerPast(attention, mx.concatenate([row.opened for row in rows]))


def _row(layer: LayerPast, row: int, rows: int) -> LayerPast:
    if rows == 1:
        return layer
    at = slice(row, row + 1)
    # Copies: a view would keep the whole batch alive as long as one of its streams is.
    attention = PastKeys(*(mx.contiguous(part[at]) for part in layer.attention))
    return LayerPast(attention, mx.contiguous(layer.opened[at]))
