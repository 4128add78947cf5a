"""The encoder: subsampling, positions and masks once, then the layers.

Knows lengths and what each frame may see; knows neither audio nor labels.
"""

import math
import sys

import mlx.core as mx
import numpy as np
from mlx import nn
from numpy.typing import NDArray

from kernels.runtime.device import on_gpu
from worker.models.conformer.attention import AttentionContext, Positions, position_table, sinusoids
from worker.models.conformer.config import EncoderConfig
from worker.models.conformer.layer import ConformerLayer, PooledLayer, RowNorm, TransformerLayer
from worker.models.conformer.subsampling import SUBSAMPLINGS, Conv2dSubsampling
from worker.models.turns import give_way

AttContext = tuple[int, int]
"""Encoder frames to the left and to the right."""

# 41 s. Keys of its positions are kept in every layer: 36 MB for 17 layers of width 512 in float32.
USUAL_FRAMES = 512
LEAST = (
    -1e30
)  # of a mask that is added: a padded frame may see no key at all, and its softmax must be a number


def length_bucket(frames: int) -> int:
    """`frames` rounded up to a multiple of 8, of a 16th beyond 128: at most an eighth longer."""
    step = max(8, (1 << (frames - 1).bit_length()) // 16)
    return -(-frames // step) * step


class FeatureNorm(nn.Module):
    """Mean and inverse deviation of each band over what a model was trained on."""

    def __init__(self, bands: int) -> None:
        super().__init__()
        self.mean, self.istd = mx.zeros((bands,)), mx.ones((bands,))

    def __call__(self, features: mx.array) -> mx.array:
        """[B, T, bands] float32."""
        return (features - self.mean) * self.istd


class ConformerEncoder(nn.Module):
    """Features of a batch to encoder frames.

    A GPU takes the batch as one padded array, of few different lengths (`length_bucket`): its allocator keeps
    what was of a size, and would keep one of every length it ever met. A CPU gains nothing from one array and
    would compute the padding, and its matrix product rounds a row by how many rows stand beside it; so there
    each utterance goes through a layer by itself, one after another while the layer's weights are in the
    cache: no padding, the memory of one utterance at a time, and the same bits in any batch.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.pre_encode = SUBSAMPLINGS.get(config.subsampling, Conv2dSubsampling)(config)
        kind = ConformerLayer if config.conv_kernel_size else TransformerLayer
        pooled = config.pooled_layers
        self.layers = [(PooledLayer if at in pooled else kind)(config) for at in range(config.n_layers)]
        if config.has_feature_norm:
            self.global_cmvn = FeatureNorm(config.feat_in)
        if config.has_final_norm:
            self.after_norm = RowNorm(config.d_model)
        self.config = config
        self._positions: dict[mx.Dtype, Positions] = {}

    def __call__(
        self, features: mx.array, lengths: NDArray[np.int32], context: AttContext | None = None
    ) -> tuple[mx.array, NDArray[np.int32]]:
        """features [B, T, mels], lengths [B] valid feature frames, the longest T -> frames [B, T', d_model]
        in the weights' dtype and their lengths [B], at most T'. Frames past an utterance's length are zero.
        context: how many frames attention reaches to the left and right, one of `EncoderConfig.att_contexts`
        where it has some; None for its default."""
        context = context or self.config.att_context_size
        counts = np.array([self.pre_encode.frames_of(int(length)) for length in lengths], np.int32)
        together = self._prepare_frames if on_gpu() else self._one_by_one
        return together(features, lengths, counts, context), counts

    def encode_rows(self, rows: mx.array) -> mx.array:
        """Subsampled frames [1, T, d_model] of one sequence, as `pre_encode` gives them, to encoder frames of
        the same shape. The frames need not come of one stretch of audio."""
        count = rows.shape[1]
        room = length_bucket(count) if on_gpu() else count
        x = mx.pad(self._scale_frames(rows), [(0, 0), (0, room - count), (0, 0)])
        valid, sight = self._sight(room, np.array([count], np.int32), self.config.att_context_size)
        positions = self.positions(room, x.dtype)
        for layer in self.layers:
            x = layer(x, positions, sight, valid)
            mx.eval(x)
            give_way(x)
        return x[:, :count]

    def finish(self, x: mx.array) -> mx.array:
        """What the last layer gave, normed where the model norms it."""
        return self.after_norm(x) if self.config.has_final_norm else x

    def _prepare_frames(
        self, features: mx.array, lengths: NDArray[np.int32], counts: NDArray[np.int32], context: AttContext
    ) -> mx.array:
        longest = length_bucket(max(1, int(counts.max(initial=0))))
        room = max(0, self.pre_encode.features_for(longest) - features.shape[1])
        x = self.subsample(mx.pad(features, [(0, 0), (0, room), (0, 0)]), lengths)[:, :longest]
        valid, sight = self._sight(longest, counts, context)
        positions = self.positions(longest, x.dtype)
        for layer in self.layers:
            x = layer(x, positions, sight, valid)
            give_way(x)
        return mx.where(valid, self.finish(x), mx.zeros((), dtype=x.dtype))

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
            seen[row] = (self.positions(count, rows[row].dtype), *sight_of)
            mx.eval(rows[row])
            give_way(rows[row])
        for layer in self.layers:
            for row in sounding:
                positions, valid, sight = seen[row]
                rows[row] = layer(rows[row], positions, sight, valid)
                mx.eval(rows[row])
                give_way(rows[row])
        silence = mx.zeros((1, longest, self.config.d_model), self._dtype)
        padded = [
            mx.pad(self.finish(rows[row]), [(0, 0), (0, longest - count), (0, 0)]) if count else silence
            for row, count in enumerate(counts.tolist())
        ]
        return mx.concatenate(padded)

    def subsample(self, features: mx.array, lengths: NDArray[np.int32]) -> mx.array:
        """Features [B, T, mels], lengths [B] -> what enters the first layer, [B, T', d_model]."""
        if self.config.has_feature_norm:
            features = self.global_cmvn(features)
        x = self._scale_frames(self.pre_encode(features.astype(self._dtype), mx.array(lengths)))
        if self.config.self_attention_model == "abs_pos":
            x = x + self.positions(x.shape[1], x.dtype).table
        return x

    @property
    def _dtype(self) -> mx.Dtype:
        dtype: mx.Dtype = self.pre_encode.out.dtype
        return dtype

    def _scale_frames(self, x: mx.array) -> mx.array:
        return x * math.sqrt(self.config.d_model) if self.config.xscaling else x

    def _sight(
        self, frames: int, counts: NDArray[np.int32], context: AttContext
    ) -> tuple[mx.array, AttentionContext]:
        """Which frames are of their utterance, [B, T, 1] bool, and what each sees."""
        valid = mx.arange(frames)[None] < mx.array(counts)[:, None]
        if not self.config.is_shifted:
            mask = self._added_mask(frames, counts, context)
        else:
            mask = valid if self.config.is_local else self._attention_mask(valid, context)
        return valid[:, :, None], AttentionContext(mask, mx.array(counts), self._window(context))

    @property
    def width(self) -> int:
        return self.config.d_model

    def fold(self, dtype: mx.Dtype) -> None:
        """Fixes every layer's filters of inference; called once, after the weights are in."""
        self.pre_encode.fold()
        for layer in self.layers:
            layer.fold(dtype)

    def positions(self, frames: int, dtype: mx.Dtype) -> Positions:
        """The relative positions that the attention needs for that many frames: of usual lengths one table,
        made once, of longer ones no larger a table than it must be."""
        width = self.config.d_model
        if not self.config.is_shifted:
            return self.positions_at(np.arange(frames), dtype)
        if dtype in self._positions and frames <= self._positions[dtype].room:
            return self._positions[dtype]
        if self.config.is_local:
            left, right = self.config.att_context_size
            entry = Positions(position_table(left, -right, width, dtype), sys.maxsize, kept=True)
        else:
            room = max(frames, USUAL_FRAMES)
            table = position_table(room - 1, 1 - room, width, dtype)
            entry = Positions(table, room, kept=room == USUAL_FRAMES)
        if entry.kept:
            self._positions[dtype] = entry
        return entry

    def positions_at(self, places: NDArray[np.int64], dtype: mx.Dtype) -> Positions:
        """Without a shift: those of frames at these places [..., T]."""
        table = sinusoids(mx.array(places), self.config.d_model).astype(dtype)
        return Positions(table, places.shape[-1], kept=False)

    def _window(self, context: AttContext) -> AttContext | None:
        """The context as frames to the left and right; None where it goes by chunks."""
        left, right = context
        if self.config.att_context_style != "regular" and right >= 0:
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
        if self.config.att_context_style == "chunked_limited" and right >= 0:
            return mask & _chunk_mask(query, key, left, right + 1)
        if left >= 0:
            mask = mask & (key >= query - left)
        if right >= 0 and self.config.att_context_style == "regular":
            mask = mask & (key <= query + right)
        return mask

    def _added_mask(self, frames: int, counts: NDArray[np.int32], context: AttContext) -> mx.array | None:
        """As `_attention_mask`, but -inf where nothing is seen and else 0; None where all is seen."""
        mask = None
        if counts.min() < frames:
            # A row of no frames sees one key, so that its softmax is a number; nobody reads it.
            seen = mx.arange(frames) < mx.maximum(mx.array(counts), 1)[:, None]
            mask = mx.where(seen, 0.0, -mx.inf)[:, None, None].astype(mx.float32)
        if context[1] >= 0:
            place = mx.arange(frames)
            chunks = _chunk_mask(place[:, None], place[None], context[0], context[1] + 1)
            near = mx.where(chunks, 0.0, -mx.inf)[None, None].astype(mx.float32)
            mask = near if mask is None else mx.maximum(mask + near, LEAST)
        return mask


class EncoderPart(nn.Module):
    """An encoder under the name that checkpoints give it, beside parts that are no modules."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.encoder = ConformerEncoder(config)


def _chunk_mask(query: mx.array, key: mx.array, left: int, chunk: int) -> mx.array:
    """A frame sees its own chunk, and whole chunks before it as far as `left` frames (all of them if
    negative)."""
    behind = query // chunk - key // chunk
    seen = behind >= 0
    return seen & (behind <= left // chunk) if left >= 0 else seen
