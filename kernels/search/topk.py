"""Exact top-K of rows, with a rule for ties and for values that are never chosen."""

import mlx.core as mx

_SIGN = 0x8000_0000
_LOW = 0xFFFF_FFFF


def top_k(values: mx.array, k: int) -> tuple[mx.array, mx.array]:
    """The k largest of each row, largest first; equal values are ordered by index, lowest first.

    values: float32 [..., N], N >= 1. k >= 1, also above N.
    Returns (values float32 [..., k], indices int32 [..., k]).
    Minus infinity and NaN are never chosen: places they would take, and places beyond N, hold (-inf, -1).
    Plus infinity is an ordinary largest value; 0.0 and -0.0 are equal.
    """
    n = values.shape[-1]
    keys = _keys(values.astype(mx.float32))
    if k < n:
        keys = mx.topk(keys, k, axis=-1)
    keys = mx.sort(keys, axis=-1)[..., ::-1]
    best, index = _unpack(keys)
    if k > n:
        pad = [(0, 0)] * (values.ndim - 1) + [(0, k - n)]
        best = mx.pad(best, pad, constant_values=-mx.inf)
        index = mx.pad(index, pad, constant_values=-1)
    return best, index


def _keys(values: mx.array) -> mx.array:
    """Value and place in one unsigned integer: no two are equal, so a sort's own tie rule never counts."""
    # Adding zero turns -0.0 into 0.0, whose bits differ.
    clean = mx.where(mx.isnan(values), -mx.inf, values + 0.0)
    bits = clean.view(mx.uint32)
    sign = mx.array(_SIGN, dtype=mx.uint32)
    ordered = mx.where(bits >= sign, ~bits, bits | sign)
    place = mx.array(_LOW, dtype=mx.uint32) - mx.arange(values.shape[-1], dtype=mx.uint32)
    return (ordered.astype(mx.uint64) << 32) | place.astype(mx.uint64)


def _unpack(keys: mx.array) -> tuple[mx.array, mx.array]:
    sign = mx.array(_SIGN, dtype=mx.uint32)
    ordered = (keys >> 32).astype(mx.uint32)
    bits = mx.where(ordered >= sign, ordered & ~sign, ~ordered)
    values = bits.view(mx.float32)
    place = mx.array(_LOW, dtype=mx.uint32) - (keys & _LOW).astype(mx.uint32)
    return values, mx.where(values == -mx.inf, -1, place.astype(mx.int32))
