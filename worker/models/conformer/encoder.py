"""The FastConformer encoder: subsampling, positions and masks once, then the layers.

Knows lengths and what each frame may see; knows neither audio nor labels.
"""

import math
import sys

import mlx.core as mx
import numpy as np
from mlx import nn
from numpy.typing import NDArray

from kernels.runtime.device import on_gpu
from worker.models.conformer.attention import AttentionContext, Positions, position_table
from worker.models.conformer.layer import ConformerLayer
from worker.models.conformer.subsampling import DwStridingSubsampling
from worker.models.nemo.config import EncoderConfig
from worker.models.turns import give_way

AttContext = tuple[int, int]
"""Encoder frames to the left and to the right."""

# 41 s. Keys of its positions are kept in every layer: 36 MB for 17 layers of width 512 in float32.
USUAL_FRAMES = 512


def length_bucket(frames: int) -> int:
    """`frames` rounded up to a multiple of 8, of a 16th beyond 128: at most an eighth longer."""
    step = max(8, (1 << (frames - 1).bit_length()) // 16)
    return -(-frames // step) * step


class ConformerEncoder(nn.Module):
    """Normalised log-mel of a batch to encoder frames.

    A GPU takes the batch as one padded array, of few different lengths (`length_bucket`): its allocator keeps
    what was of a size, and would keep one of every length it ever met. A CPU gains nothing from one array and
    would compute the padding, and its matrix product rounds a row by how many rows stand beside it; so there
    each utterance goes through a layer by itself, one after another while the layer's weights are in the
    cache: no padding, the memory of one utterance at a time, and the same bits in any batch.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.pre_encode = DwStridingSubsampling(config)
        self.layers = [ConformerLayer(config) for _ in range(config.n_layers)]
        self._config = config
        self._positions: dict[mx.Dtype, Positions] = {}

    def __call__(
        self, features: mx.array, lengths: NDArray[np.int32], context: AttContext | None = None
    ) -> tuple[mx.array, NDArray[np.int32]]:
        """features [B, T, mels] in the weights' dtype, lengths [B] valid feature frames, the longest T ->
        frames [B, T', d_model] of that dtype and their lengths [B], at most T'. Frames past an utterance's
        length are zero. context: how many frames attention reaches to the left and right, one of
        `EncoderConfig.att_contexts`; None for the first of them."""
        context = context or self._config.att_context_size
        counts = np.array([self.pre_encode.frames_of(int(length)) for length in lengths], np.int32)
        together = self._prepare_frames if on_gpu() else self._one_by_one
        return together(features, lengths, counts, context), counts

    def encode_rows(self, rows: mx.array) -> mx.array:
        """Subsampled frames [1, T, d_model] of one sequence, as `pre_encode` gives them, to encoder frames of
        the same shape. The frames need not come of one stretch of audio."""
        count = rows.shape[1]
        room = length_bucket(count) if on_gpu() else count
        x = mx.pad(self._scale_frames(rows), [(0, 0), (0, room - count), (0, 0)])
        valid, sight = self._sight(room, np.array([count], np.int32), self._config.att_context_size)
        positions = self.positions(room, x.dtype)
        for layer in self.layers:
            x = layer(x, positions, sight, valid)
            mx.eval(x)
            give_way(x)
        return x[:, :count]

    def _prepare_frames(
        self, features: mx.array, lengths: NDArray[np.int32], counts: NDArray[np.int32], context: AttContext
    ) -> mx.array:
        longest = length_bucket(max(1, int(counts.max(initial=0))))
        room = longest * self._config.subsampling_factor - features.shape[1]
        x = self.subsample(mx.pad(features, [(0, 0), (0, room), (0, 0)]), lengths)[:, :longest]
        valid, sight = self._sight(longest, counts, context)
        positions = self.positions(longest, x.dtype)
        for layer in self.layers:
            x = layer(x, positions, sight, valid)
            give_way(x)
        return mx.where(valid, x, mx.zeros((), dtype=x.dtype))

    def _one_by_one(
        self, features: mx.array, lengths: NDArray[np.int32], counts: NDArray[np.int32], context: AttContext
    ) -> mx.array:
        longest = max(1, int(counts.max(initial=0)))
        sounding = [row for row, count in enumerate(counts.tolist()) if count]
        rows, seen = {}, {}
        for row in sounding:
            length, count = int(lengths[row]), int(counts[row])
            rows[row] = self.subsample(features[row : row + 1, :length], lengths[row : row + 1])
            sight_of = self._sight(count, counts[row : row + 1], context)
            seen[row] = (self.positions(count, features.dtype), *sight_of)
            mx.eval(rows[row])
            give_way(rows[row])
        for layer in self.layers:
            for row in sounding:
                positions, valid, sight = seen[row]
                rows[row] = layer(rows[row], positions, sight, valid)
                mx.eval(rows[row])
                give_way(rows[row])
        silence = mx.zeros((1, longest, self._config.d_model), features.dtype)
        padded = [
            mx.pad(rows[row], [(0, 0), (0, longest - count), (0, 0)]) if count else silence
            for row, count in enumerate(counts.tolist())
        ]
        return mx.concatenate(padded)

    def subsample(self, features: mx.array, lengths: NDArray[np.int32]) -> mx.array:
        """Features [B, T, mels], lengths [B] -> what enters the first layer, [B, T', d_model]."""
        return self._scale_frames(self.pre_encode(features, mx.array(lengths)))

    def _scale_frames(self, x: mx.array) -> mx.array:
        return x * math.sqrt(self._config.d_model) if self._config.xscaling else x

    def _sight(
        self, frames: int, counts: NDArray[np.int32], context: AttContext
    ) -> tuple[mx.array, AttentionContext]:
        """Which frames are of their utterance, [B, T, 1] bool, and what each sees."""
        valid = mx.arange(frames)[None] < mx.array(counts)[:, None]
        mask = valid if self._config.is_local else self._attention_mask(valid, context)
        return valid[:, :, None], AttentionContext(mask, mx.array(counts), self._window(context))

    @property
    def width(self) -> int:
        return self._config.d_model

    def fold(self, dtype: mx.Dtype) -> None:
        """Fixes every layer's filters of inference; called once, after the weights are in."""
        self.pre_encode.fold()
        for layer in self.layers:
            layer.fold(dtype)

    def positions(self, frames: int, dtype: mx.Dtype) -> Positions:
        """The relative positions that the attention needs for that many frames: of usual lengths one table,
        made once, of longer ones no larger a table than it must be."""
        width = self._config.d_model
        if dtype in self._positions and frames <= self._positions[dtype].room:
            return self._positions[dtype]
        if self._config.is_local:
            left, right = self._config.att_context_size
            entry = Positions(position_table(left, -right, width, dtype), sys.maxsize, kept=True)
        else:
            room = max(frames, USUAL_FRAMES)
            table = position_table(room - 1, 1 - room, width, dtype)
            entry = Positions(table, room, kept=room == USUAL_FRAMES)
        if entry.kept:
            self._positions[dtype] = entry
        return entry

    def _window(self, context: AttContext) -> AttContext | None:
        """The context as frames to the left and right; None where it goes by chunks."""
        left, right = context
        if self._config.att_context_style != "regular" and right >= 0:
            return None
        return left, right

    def _attention_mask(self, valid: mx.array, context: AttContext) -> mx.array:
        """[B, T] -> [B, 1, T, T]: what each frame sees of its own utterance."""
        mask = valid[:, None, None, :]
        left, right = context
        if left < 0 and right < 0:
            return mx.broadcast_to(mask, (*mask.shape[:2], valid.shape[1], valid.shape[1]))
        query = mx.arange(valid.shape[1])[:, None]
        key = mx.arange(valid.shape[1])[None]
        if self._config.att_context_style == "chunked_limited" and right >= 0:
            return mask & _chunk_mask(query, key, left, right + 1)
        if left >= 0:
            mask = mask & (key >= query - left)
        if right >= 0 and self._config.att_context_style == "regular":
            mask = mask & (key <= query + right)
        return mask


def _chunk_mask(query: mx.array, key: mx.array, left: int, chunk: int) -> mx.array:
    """A frame sees its own chunk, and whole chunks before it as far as `left` frames (all of them if
    negative)."""
    behind = query // chunk - key // chunk
    seen = behind >= 0
    return seen & (behind <= left // chunk) if left >= 0 else seen
