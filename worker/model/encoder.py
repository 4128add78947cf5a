"""The FastConformer encoder: subsampling, positions and masks once, then the layers.

Knows lengths and what each frame may see; knows neither audio nor labels.
"""

import math

import mlx.core as mx
import numpy as np
from mlx import nn
from numpy.typing import NDArray

from worker.model.attention import Sight, position_table
from worker.model.config import EncoderConfig
from worker.model.conformer import ConformerLayer
from worker.model.subsampling import DwStridingSubsampling


class ConformerEncoder(nn.Module):
    """Normalised log-mel of a batch to encoder frames."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.pre_encode = DwStridingSubsampling(config)
        self.layers = [ConformerLayer(config) for _ in range(config.n_layers)]
        self._config = config

    def __call__(self, features: mx.array, lengths: NDArray[np.int32]) -> tuple[mx.array, NDArray[np.int32]]:
        """features [B, T, mels] in the weights' dtype, lengths [B] valid feature frames -> frames [B, T',
        d_model] of that dtype and their lengths [B]. Frames past an utterance's length are zero."""
        counts = np.array([self.pre_encode.frames_of(int(length)) for length in lengths], np.int32)
        x = self.pre_encode(features, mx.array(lengths))[:, : max(1, int(counts.max(initial=0)))]
        if self._config.xscaling:
            x = x * math.sqrt(self._config.d_model)
        positions = self.positions(x.shape[1], x.dtype)
        valid = mx.arange(x.shape[1])[None] < mx.array(counts)[:, None]
        mask = valid if self._config.is_local else self._attention_mask(valid)
        sight = Sight(mask, mx.array(counts), self._window())
        for layer in self.layers:
            x = layer(x, positions, sight, valid[:, :, None])
        return mx.where(valid[:, :, None], x, mx.zeros((), dtype=x.dtype)), counts

    def fold(self, dtype: mx.Dtype) -> None:
        """Fixes every layer's filters of inference; called once, after the weights are in."""
        self.pre_encode.fold()
        for layer in self.layers:
            layer.conv.fold(dtype)

    def positions(self, frames: int, dtype: mx.Dtype) -> mx.array:
        """The table of relative positions that the attention needs for that many frames, and no larger."""
        if self._config.is_local:
            left, right = self._config.att_context_size
            return position_table(left, -right, self._config.d_model, dtype)
        return position_table(frames - 1, 1 - frames, self._config.d_model, dtype)

    def _window(self) -> tuple[int, int] | None:
        """The context as frames to the left and right; None where it goes by chunks."""
        left, right = self._config.att_context_size
        if self._config.att_context_style != "regular" and right >= 0:
            return None
        return left, right

    def _attention_mask(self, valid: mx.array) -> mx.array:
        """[B, T] -> [B, 1, T, T]: what each frame sees of its own utterance."""
        mask = valid[:, None, None, :]
        left, right = self._config.att_context_size
        if left < 0 and right < 0:
            return mx.broadcast_to(mask, (*mask.shape[:2], valid.shape[1], valid.shape[1]))
        query = mx.arange(valid.shape[1])[:, None]
        key = mx.arange(valid.shape[1])[None]
        if self._config.att_context_style == "chunked_limited" and right >= 0:
            return mask & _chunked(query, key, left, right + 1)
        if left >= 0:
            mask = mask & (key >= query - left)
        if right >= 0 and self._config.att_context_style == "regular":
            mask = mask & (key <= query + right)
        return mask


def _chunked(query: mx.array, key: mx.array, left: int, chunk: int) -> mx.array:
    """A frame sees its own chunk, and whole chunks before it as far as `left` frames (all of them if
    negative)."""
    behind = query // chunk - key // chunk
    seen = behind >= 0
    return seen & (behind <= left // chunk) if left >= 0 else seen
