"""Whisper's encoder: log-mel of windows to frames, 50 a second.

The windows of a batch are of one length, so there is no mask and no padding, and a window never sees its
neighbours.
"""

import mlx.core as mx

from kernels.nn.activations import gelu
from worker.models.attention.blocks import Tensors
from worker.models.attention.layers import Product, arrays_of, attend_full, by_rows, pack
from worker.models.turns import give_way
from worker.models.whisper.config import WhisperDims
from worker.models.whisper.layouts import BLOCK


class WhisperEncoder:
    """Two convolutions as matrix products, sinusoids, pre-norm blocks, a norm (Radford et al. 2022, 2.2)."""

    def __init__(self, dims: WhisperDims, tensors: dict[str, mx.array], dtype: mx.Dtype) -> None:
        self.dims, self.dtype = dims, dtype
        source = Tensors(tensors, dtype)
        self.convolutions = [
            (
                pack(Product(_rows(source.array(f"encoder.{name}.weight")))),
                source.array(f"encoder.{name}.bias"),
            )
            for name in ("conv1", "conv2")
        ]
        self.positions = source.array("encoder.positional_embedding")
        self.layers = [
            source.encoder_block(f"encoder.blocks.{layer}", BLOCK.own, BLOCK.mlp, dims.n_audio_head)
            for layer in range(dims.n_audio_layer)
        ]
        self.norm = source.norm("encoder.ln_post")

    @property
    def parameters(self) -> list[mx.array]:
        """Every array, to evaluate or to count."""
        return arrays_of(self.convolutions, self.positions, self.norm, self.layers)

    def __call__(self, mel: mx.array) -> mx.array:
        """[B, 2 T, mels] float32, T at most 1500 -> [B, T, d] in the model's dtype."""
        x = mel.astype(self.dtype)
        for (product, bias), stride in zip(self.convolutions, (1, 2), strict=True):
            x = gelu(product(_windows(x, stride)), bias)
        x = x + self.positions[: x.shape[1]]
        heads = self.dims.n_audio_head
        for attention, mlp in self.layers:
            x = x + attention.out(attend_full(attention.fused(attention.norm(x)), heads))
            x = x + by_rows(mlp, x)
            give_way(x)
        return self.norm(x)


def _rows(weight: mx.array) -> mx.array:
    """[out, in, 3] as [out, 3 * in]: three frames lie side by side in a row."""
    return mx.contiguous(weight.swapaxes(1, 2).reshape(weight.shape[0], -1))


def _windows(x: mx.array, stride: int) -> mx.array:
    """[B, T, d] -> [B, T / stride, 3 d]: each frame between its neighbours, zeros beyond the ends."""
    batch, length, width = x.shape
    padded = mx.contiguous(mx.pad(x, [(0, 0), (1, 1), (0, 0)]))
    return mx.as_strided(
        padded, (batch, length // stride, 3 * width), ((length + 2) * width, stride * width, 1)
    )
