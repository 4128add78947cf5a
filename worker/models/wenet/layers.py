"""What the encoder has beside `worker.models.attention.layers`: tensors by name, attention with a bias.

Weights are plain arrays. On a GPU attention is MLX's fused operation; on a CPU it is two products around the
kernel of a softmax that is divided at the end.
"""

from collections.abc import Mapping

import mlx.core as mx

from kernels.nn.activations import row_exp
from kernels.runtime.device import compiles_for_cpu
from worker.models.attention.blocks import Tensors
from worker.models.attention.layers import Linear


class Reader(Tensors):
    """Remembers what it hands out."""

    def __init__(self, tensors: Mapping[str, mx.array], dtype: mx.Dtype) -> None:
        super().__init__(tensors, dtype)
        self.arrays: list[mx.array] = []

    def kept(self, array: mx.array) -> mx.array:
        """The array, counted among the model's."""
        array = array.astype(self._dtype)
        self.arrays.append(array)
        return array

    def array(self, name: str) -> mx.array:
        return self.kept(self._tensors[name])

    def raw(self, name: str) -> mx.array:
        """One tensor as float32, to compute with before it is kept."""
        return self._tensors[name]

    def linear(self, *names: str) -> Linear:
        """The layers of these names side by side; pointwise convolutions [out, in, 1] are linear too."""
        weights = [self.raw(f"{name}.weight") for name in names]
        joined = mx.concatenate([weight.reshape(weight.shape[0], -1) for weight in weights])
        biases = mx.concatenate([self.raw(f"{name}.bias") for name in names])
        return Linear(self.kept(joined), self.kept(biases))

    def query(self, name: str, heads: int) -> Linear:
        """As `Tensors.query`, scaled before it is rounded to the dtype."""
        plain = self.raw(f"{name}.weight")
        scale = float((plain.shape[0] // heads) ** -0.5)
        return Linear(self.kept(plain * scale), self.kept(self.raw(f"{name}.bias") * scale))


def attend(queries: mx.array, keys: mx.array, values: mx.array, bias: mx.array | None) -> mx.array:
    """softmax((q·k) / √D + bias)·v: queries [B, H, Q, D], keys and values [B, H, T, D]; bias broadcasts to
    [B, H, Q, T], -inf where a key is not seen, and leaves each query at least one -> [B, H, Q, D]."""
    scale = queries.shape[-1] ** -0.5
    if not compiles_for_cpu():
        mask = None if bias is None else bias.astype(queries.dtype)
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)
    products = (mx.contiguous(queries * scale) @ mx.contiguous(keys).swapaxes(2, 3)).astype(mx.float32)
    weights, total = row_exp(products if bias is None else products + bias)
    return (weights.astype(values.dtype) @ mx.contiguous(values)) / total.astype(values.dtype)


def sinusoids(positions: mx.array, width: int) -> mx.array:
    """Sine and cosine in turns of positions / 10000^(2i / width) (Vaswani et al. 2017, 3.5), float32
    [..., width]."""
    rates = mx.exp(mx.arange(0, width, 2) * (-9.210340371976184 / width))
    angles = positions[..., None].astype(mx.float32) * rates
    return mx.stack([mx.sin(angles), mx.cos(angles)], axis=-1).reshape(*positions.shape, width)
