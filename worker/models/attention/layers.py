"""The blocks that encoders and decoders with plain attention are made of: linear, norm, attention,
feed-forward.

Weights are plain arrays, fused where one product does for several. The scale 1/√D of attention stands in the
query's weights. Attention is behind three small functions, one a shape of problem. Knows no family.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import mlx.core as mx
import numpy as np

from kernels.attention.cross_attention import plain_keys
from kernels.attention.full_attention import full_attention
from kernels.nn.activations import gelu, row_exp
from kernels.nn.elementwise import layer_norm
from kernels.nn.int8_products import Int8Products
from kernels.nn.row_products import RowProducts, can_run
from kernels.runtime.build_cpu import BuildFailed
from kernels.runtime.device import read_backend
from worker.models.compute_type import take_int8
from worker.models.grouped import grouped_product

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_log = logging.getLogger(__name__)

# Rows that a CPU takes at a time: of 150 to 1500, a 1500-frame window was fastest with 500 (LOG.md).
ROWS = 500
# Of causal attention; of 64 to 1024, 128 were fastest for prompts of 405 places (LOG.md).
QUERIES = 128


@dataclass(frozen=True, slots=True)
class Product:
    """x · weightᵀ; weight [out, in]."""

    weight: mx.array

    def __call__(self, x: mx.array) -> mx.array:
        """x [..., in] -> [..., out]."""
        return x @ self.weight.T

    @property
    def dtype(self) -> mx.Dtype:
        return self.weight.dtype

    def of_outputs(self, outputs: mx.array) -> mx.array:
        """The weights of these outputs, int32 [N] -> [N, in]."""
        return self.weight[outputs]


@dataclass(frozen=True, slots=True)
class Linear(Product):
    """x · weightᵀ + bias; weight [out, in]."""

    bias: mx.array

    def __call__(self, x: mx.array) -> mx.array:
        """x [..., in] -> [..., out]."""
        return mx.addmm(self.bias, x, self.weight.T)


@dataclass(frozen=True, slots=True)
class Grouped:
    """x · weightᵀ + bias of a weight that stays quantised in groups, as `worker.models.grouped` has it; bias
    [out] or None."""

    packed: mx.array
    scales: mx.array
    biases: mx.array
    bias: mx.array | None

    def __call__(self, x: mx.array) -> mx.array:
        """x [..., in] -> [..., out]."""
        out = grouped_product(x, self.packed, self.scales, self.biases)
        return out if self.bias is None else out + self.bias


Table = Product | RowProducts
Affine = Table | Int8Products | Grouped


def pack(product: Table) -> Table:
    """The same with its weights packed once, where this CPU has the kernel for it."""
    if isinstance(product, RowProducts) or product.dtype != mx.float32 or not can_run():
        return product
    try:
        return RowProducts.pack(product.weight, product.bias if isinstance(product, Linear) else None)
    except BuildFailed as failure:
        if read_backend():
            raise
        _log.warning("products with weights go to MLX, few rows at half the speed: %s", failure)
        return product


@dataclass(frozen=True, slots=True)
class Norm:
    """Layer norm over the last axis, epsilon 1e-5, computed in float32."""

    weight: mx.array
    bias: mx.array

    def __call__(self, x: mx.array) -> mx.array:
        """Any shape [..., d]."""
        return layer_norm(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Mlp:
    """Norm, widening (whose bias the activation adds), GELU or ReLU, narrowing."""

    norm: Norm
    widen: Affine
    widen_bias: mx.array
    narrow: Affine
    activation: Literal["gelu", "relu"] = "gelu"

    def __call__(self, x: mx.array) -> mx.array:
        """x [..., d] -> what is to be added to it."""
        wide = self.widen(self.norm(x))
        if self.activation == "gelu":
            return self.narrow(gelu(wide, self.widen_bias))
        return self.narrow(mx.maximum(wide + self.widen_bias, 0))


@dataclass(frozen=True, slots=True)
class SelfAttention:
    """`fused` gives queries (scaled), keys and values side by side."""

    norm: Norm
    fused: Affine
    out: Affine


@dataclass(frozen=True, slots=True)
class CrossAttention:
    """`query` is scaled; `memory` gives keys and values of encoder frames side by side."""

    norm: Norm
    query: Affine
    memory: Affine
    out: Affine


Part = TypeVar("Part", bound="DataclassInstance")


def pack_for_frames(product: Table) -> Table | Int8Products:
    """As `pack`, for the many rows of an encoder or a prompt: in 8-bit integers where the model is loaded
    so."""
    if isinstance(product, RowProducts) or product.dtype != mx.float32 or not take_int8():
        return pack(product)
    return Int8Products.pack(product.weight, product.bias if isinstance(product, Linear) else None)


def pack_parts(block: Part, pack: Callable[[Table], Affine] = pack) -> Part:
    """The same with its products packed."""
    products: dict[str, Any] = {
        each.name: pack(getattr(block, each.name))
        for each in fields(block)
        if isinstance(getattr(block, each.name), Table)
    }
    return replace(block, **products)


def arrays_of(*weights: object) -> list[mx.array]:
    """Every array in these, to evaluate or to count."""
    arrays: list[mx.array] = []
    for part in weights:
        if isinstance(part, mx.array):
            arrays.append(part)
        elif isinstance(part, RowProducts | Int8Products):
            arrays += part.arrays
        elif isinstance(part, tuple | list):
            arrays += arrays_of(*part)
        elif is_dataclass(part):
            arrays += arrays_of(*(getattr(part, each.name) for each in fields(part)))
    return arrays


def split_heads(x: mx.array, heads: int) -> mx.array:
    """[B, T, heads * D] -> [B, heads, T, D]."""
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).swapaxes(1, 2)


def join_heads(x: mx.array) -> mx.array:
    """[B, heads, T, D] -> [B, T, heads * D]."""
    batch, heads, length, width = x.shape
    return x.swapaxes(1, 2).reshape(batch, length, heads * width)


def is_cpu() -> bool:
    """Whether arrays are computed by a CPU, where a window is best taken by itself and a product is a
    call."""
    return mx.default_device() == mx.Device(mx.cpu)


def attend_full(fused: mx.array, heads: int) -> mx.array:
    """Attention without a mask of every position to all: [B, T, 3 * H * D], scaled queries, keys and values
    side by side -> [B, T, H * D]."""
    if is_cpu():
        return full_attention(fused, heads)
    queries, keys, values = (split_heads(part, heads) for part in mx.split(fused, 3, axis=-1))
    return join_heads(mx.fast.scaled_dot_product_attention(queries, keys, values, scale=1.0))


def attend_windows(fused: mx.array, heads: int, counts: Sequence[int], window: int) -> mx.array:
    """As `attend_full`, within windows of `window` positions counted from the start of each sequence: fused
    [1, N, 3 * H * D], sequences of so many positions each side by side -> [1, N, H * D]."""
    outputs, first = [], 0
    for count in counts:
        whole = count // window * window
        if whole:
            rows = fused[:, first : first + whole].reshape(-1, window, fused.shape[2])
            outputs.append(attend_full(rows, heads).reshape(1, whole, -1))
        if whole < count:
            outputs.append(attend_full(fused[:, first + whole : first + count], heads))
        first += count
    return mx.concatenate(outputs, axis=1)


def attend_causal(queries: mx.array, keys: mx.array, values: mx.array) -> mx.array:
    """Causal attention of grouped queries: [B, H, N, D] scaled, at the last N of T positions, keys and values
    [B, G, T, D], H a multiple of G -> [B, H, N, D]."""
    if not is_cpu():
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=1.0, mask="causal")
    batch, heads, count, width = queries.shape
    groups, before = keys.shape[1], keys.shape[2] - count
    parts = []
    # Some queries at a time, whose products stay in the cache and do not reach what comes later.
    for first in range(0, count, QUERIES):
        last = min(first + QUERIES, count)
        seen = before + last
        own = queries[:, :, first:last].reshape(batch, groups, -1, width)
        products = (own @ keys[:, :, :seen].swapaxes(2, 3)).astype(mx.float32)
        places = mx.arange(before + first, seen)[:, None]
        by_head = (batch, heads, last - first)
        masked = mx.where(mx.arange(seen) <= places, products.reshape(*by_head, seen), -mx.inf)
        attended = _attend(masked.reshape(products.shape), values[:, :, :seen])
        parts.append(attended.reshape(*by_head, width))
    return mx.concatenate(parts, axis=2)


def halve_patches(x: mx.array) -> mx.array:
    """What a 3 x 3 convolution of stride 2 sees: [S, T, F, C] -> [S, ceil(T / 2), ceil(F / 2), 9 C], every
    second frame and band with its neighbours, zeros beyond the ends."""
    count, frames, bands, channels = x.shape
    padded = mx.contiguous(mx.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)]))
    row = (bands + 2) * channels
    shape = (count, (frames + 1) // 2, (bands + 1) // 2, 3, 3, channels)
    strides = ((frames + 2) * row, 2 * row, 2 * channels, row, channels, 1)
    return mx.as_strided(padded, shape, strides).reshape(*shape[:3], 9 * channels)


def by_rows(layer: Callable[[mx.array], mx.array], x: mx.array) -> mx.array:
    """layer(x) for a layer that takes every row of x [B, T, d] by itself; a CPU takes some rows at a time, so
    that what lies between two products is still in its cache."""
    if not is_cpu() or x.shape[1] <= ROWS:
        return layer(x)
    outputs = []
    for first in range(0, x.shape[1], ROWS):
        output = layer(x[:, first : first + ROWS])
        mx.eval(output)
        outputs.append(output)
    return mx.concatenate(outputs, axis=1)


def _attend(products: mx.array, values: mx.array) -> mx.array:
    """softmax(products) · values; products float32."""
    weights, total = row_exp(products)
    return (weights.astype(values.dtype) @ values) / total.astype(values.dtype)


def attend_frames(
    queries: mx.array, memory: Sequence[tuple[mx.array, mx.array, mx.array | None]]
) -> tuple[mx.array, mx.array]:
    """Cross attention of few queries: [B, H, Q, D] scaled; memory: keys in `tile_keys`, values [U, H, T, D]
    and lengths int32 [U] (None: all of T) of neighbours that were encoded together, B utterances in all,
    shared by all queries of an utterance -> ([B, H, Q, D], the products float32 [B, H, Q, T], T the
    longest)."""
    longest = max(values.shape[2] for _, values, _ in memory)
    if is_cpu():
        memory = [own for group in memory for own in _one_by_one(*group)]
    products, first = [], 0
    for tiles, values, lengths in memory:
        keys = plain_keys(tiles, values.shape[2])
        own = queries[first : first + keys.shape[0]]
        product = own @ keys if is_cpu() else own.astype(mx.float32) @ keys.astype(mx.float32)
        if lengths is not None:
            inside = mx.arange(keys.shape[-1]) < lengths[:, None, None, None]
            product = mx.where(inside, product, -mx.inf)
        beyond = longest - keys.shape[-1]
        if beyond:
            product = mx.pad(product, [(0, 0)] * 3 + [(0, beyond)], constant_values=-mx.inf)
        products.append(product)
        first += keys.shape[0]
    # One softmax for all: on a CPU each waits for what it is given.
    joined = mx.concatenate(products) if len(products) > 1 else products[0]
    weights, total = row_exp(joined)
    outputs, first = [], 0
    for _, values, _ in memory:
        own = weights[first : first + values.shape[0], ..., : values.shape[2]]
        outputs.append(own.astype(values.dtype) @ values)
        first += values.shape[0]
    output = mx.concatenate(outputs) if len(outputs) > 1 else outputs[0]
    return output / total.astype(output.dtype), joined


def _one_by_one(
    tiles: mx.array, values: mx.array, lengths: mx.array | None
) -> list[tuple[mx.array, mx.array, mx.array | None]]:
    """Utterances of unlike lengths apart, each with its own frames alone: the bits of a CPU's product depend
    on how many there are."""
    if lengths is None:
        return [(tiles, values, None)]
    return [
        (
            tiles[row : row + 1],
            values[row : row + 1, :, : length or None],
            None if length else lengths[row : row + 1],
        )
        for row, length in enumerate(np.array(lengths).tolist())
    ]


def attend_table(queries: mx.array, keys: mx.array, values: mx.array, mask: mx.array) -> mx.array:
    """Self attention by parent table: queries [B, H, K, D] scaled over all columns that an utterance's
    hypotheses wrote, keys and values [B, H, C, D]; mask float32 [B, 1, K, C] is 0 where a column is the
    hypothesis's own history and -inf elsewhere -> [B, H, K, D]. No key or value moves."""
    products = queries.astype(mx.float32) @ keys.astype(mx.float32).swapaxes(2, 3) + mask
    return _attend(products, values)


def log_sum_exp(x: mx.array) -> mx.array:
    """log Σ exp over the last axis of [..., N], float32 [..., 1]; each row has at least one finite value."""
    wide = x.astype(mx.float32)
    _, total = row_exp(wide)
    return mx.max(wide, axis=-1, keepdims=True) + mx.log(total)


def sine_positions(length: int, width: int) -> mx.array:
    """Whisper's positions, float32 [length, width]: sines of half the width, then cosines."""
    steps = np.exp(-np.log(10_000.0) / (width // 2 - 1) * np.arange(width // 2))
    angles = np.arange(length)[:, None] * steps[None, :]
    return mx.array(np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32))
