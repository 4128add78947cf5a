"""Which hypotheses of a beam hold the same tokens, exactly and without leaving the device.

Beside its tokens a beam keeps, for each pair of slots, the length of their common prefix. Adding at most
one token a step can lengthen a common prefix by one at most, so it is enough to compare the two tokens that
follow it: no hash that could collide, and no comparison of whole sequences.
"""

from typing import NamedTuple

import mlx.core as mx


class Prefixes(NamedTuple):
    """The tokens of [B, K] hypotheses.

    tokens: int32 [B, K, L], -1 behind each end. lengths: int32 [B, K]. common: int32 [B, K, K], the length
    of the longest common prefix of two slots (symmetric; the diagonal is `lengths`).
    """

    tokens: mx.array
    lengths: mx.array
    common: mx.array


def empty_prefixes(batch: int, beam: int, capacity: int) -> Prefixes:
    """Prefixes of no token, with room for `capacity` tokens."""
    return Prefixes(
        tokens=mx.full((batch, beam, capacity), -1, dtype=mx.int32),
        lengths=mx.zeros((batch, beam), dtype=mx.int32),
        common=mx.zeros((batch, beam, beam), dtype=mx.int32),
    )


def grow(prefixes: Prefixes, capacity: int) -> Prefixes:
    """The same prefixes with room for `capacity` tokens; no change when there is as much already."""
    missing = capacity - prefixes.tokens.shape[-1]
    if missing <= 0:
        return prefixes
    tokens = mx.pad(prefixes.tokens, [(0, 0), (0, 0), (0, missing)], constant_values=-1)
    return prefixes._replace(tokens=tokens)


def extend(prefixes: Prefixes, parents: mx.array, labels: mx.array) -> Prefixes:
    """Slot k becomes slot parents[k] followed by labels[k].

    parents: int32 [B, K]; a negative one reads slot 0 (the caller knows that such a slot is dead).
    labels: int32 [B, K], negative = nothing is added. Every length must be below the capacity L before the
    call.
    """
    tokens, lengths, common = prefixes
    batch, beam, capacity = tokens.shape
    parents = mx.maximum(parents, 0)
    rows = mx.arange(batch)[:, None] * beam + parents
    tokens = mx.take(tokens.reshape(-1, capacity), rows, axis=0)
    lengths = mx.take(lengths.reshape(-1), rows)
    common = mx.take(common.reshape(-1), rows[:, :, None] * beam + parents[:, None, :])

    adds = labels >= 0
    at_end = mx.arange(capacity) == lengths[..., None]
    tokens = mx.where(at_end & adds[..., None], labels[..., None], tokens)
    slots = mx.arange(batch * beam).reshape(batch, beam, 1)
    following = mx.take(tokens.reshape(-1), slots * capacity + common)
    agree = (following == following.transpose(0, 2, 1)) & (following >= 0)
    return Prefixes(tokens, lengths + adds.astype(mx.int32), common + agree.astype(mx.int32))


def same_tokens(prefixes: Prefixes) -> mx.array:
    """bool [B, K, K]: do two slots hold the same tokens?"""
    _, lengths, common = prefixes
    return (common == lengths[:, :, None]) & (common == lengths[:, None, :])
