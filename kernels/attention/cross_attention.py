"""Attention of one query a row over its utterance's encoder frames, which all rows of an utterance share.

Owns the contract, the plain-MLX reference and the choice between it and the kernel. Who computes keys and
values, and when a row joins or leaves, is the caller's business.
"""

import mlx.core as mx

from kernels.runtime.device import dtype_name, launch
from kernels.runtime.source import read_kernel

CROSS_ATTENTION = read_kernel("attention/cross_attention", "queries keys values utterances lengths", "y")
# Of the rows of one utterance, a threadgroup carries as many as its memory holds, at most this; more of them
# read keys and values again.
QUERIES_AT_ONCE = 8
TILE = 64  # frames whose keys lie together in tiles
_GROUP_BYTES = 31 * 1024  # of a threadgroup's memory on an Apple GPU
_PARTS = 8  # as in the body


def cross_attention(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    utterances: mx.array,
    lengths: mx.array,
    *,
    beam: int,
    scaled: bool = False,
) -> mx.array:
    """softmax(q·k / √D)·v of each row and head over the frames of the row's utterance.

    queries: [R, H, D], R rows in any order. keys: [U, H, D, T], frames last, so that neighbouring lanes
    read neighbouring numbers, or in tiles of 64 frames, [U, H, ceil(T / 64), D, 64] (`tile_keys`), which a
    CPU reads one after the other. values: [U, H, T, D]. All three float32, float16 or bfloat16; products,
    softmax and sums are float32. utterances: int32 [R], the utterance of each row; a row outside 0..U-1
    belongs to none and comes out as zeros. lengths: int32 [U], frames of each utterance, 0 to T; frames
    behind them are not read, and no frames give zeros. beam: the most rows that one utterance has. scaled:
    the queries are divided by √D already.

    Returns [R, H, D] in the queries' dtype. Within 5e-6 absolute of the reference in float32 at unit scale.
    A row's bits depend on its own query and its utterance's frames alone, not on other rows, on their order
    or on T. D other than a multiple of 32 takes the reference. Raises ValueError where shapes do not fit.
    """
    rows, heads, width = _check_arguments(queries, keys, values, utterances, lengths)
    at_once, simdgroups = _group_of(beam, width)
    if width % 32 or rows == 0 or len(keys) == 0 or at_once < 1:
        return cross_attention_reference(queries, keys, values, utterances, lengths, beam=beam, scaled=scaled)
    outputs = launch(
        CROSS_ATTENTION,
        [queries, keys, values, utterances.astype(mx.int32), lengths.astype(mx.int32)],
        [(queries.shape, queries.dtype)],
        groups=len(keys) * heads,
        simdgroups=simdgroups,
        template=(
            ("T", dtype_name(queries.dtype)),
            ("D", width),
            ("Q", at_once),
            ("SCALED", scaled),
            ("TILED", keys.ndim == 5),
        ),
    )
    if outputs is None:
        return cross_attention_reference(queries, keys, values, utterances, lengths, beam=beam, scaled=scaled)
    return outputs[0]


def tile_keys(keys: mx.array) -> mx.array:
    """Keys [U, H, T, D] in tiles of 64 frames, [U, H, ceil(T / 64), D, 64], zeros behind the last frame."""
    batch, heads, frames, width = keys.shape
    padded = mx.pad(keys, [(0, 0), (0, 0), (0, -frames % TILE), (0, 0)])
    return mx.contiguous(padded.reshape(batch, heads, -1, TILE, width).swapaxes(3, 4))


def plain_keys(tiles: mx.array, frames: int) -> mx.array:
    """Tiles as [U, H, D, T]."""
    batch, heads, _, width, _ = tiles.shape
    return tiles.transpose(0, 1, 3, 2, 4).reshape(batch, heads, width, -1)[..., :frames]


def _group_of(beam: int, width: int) -> tuple[int, int]:
    """How many rows a threadgroup carries at once, and its simdgroups: fewer where rows need the memory."""
    wanted = min(beam, QUERIES_AT_ONCE)
    for simdgroups in (8, 4):
        floats_a_row = width + 64 * simdgroups + _PARTS * (width + 2)
        fitting = _GROUP_BYTES // (4 * floats_a_row)
        if fitting >= wanted:
            break
    return min(wanted, fitting), simdgroups


def cross_attention_reference(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    utterances: mx.array,
    lengths: mx.array,
    *,
    beam: int,
    scaled: bool = False,
) -> mx.array:
    """The same in plain MLX: rows are laid out by utterance, so that keys and values are shared here too."""
    rows, heads, width = _check_arguments(queries, keys, values, utterances, lengths)
    count, frames = len(keys), values.shape[2]
    if keys.ndim == 5:
        keys = plain_keys(keys, frames)
    if rows == 0 or count == 0 or beam < 1 or frames == 0:
        return mx.zeros_like(queries)
    known = (utterances >= 0) & (utterances < count)
    earlier = mx.tril(mx.ones((rows, rows), mx.bool_), -1) & (utterances[:, None] == utterances[None, :])
    rank = mx.sum(earlier, axis=1).astype(mx.int32)
    place = mx.where(known, utterances.astype(mx.int32) * beam + rank, count * beam)
    laid = mx.zeros((count * beam + 1, heads, width), mx.float32)
    laid[place] = queries.astype(mx.float32) * (1.0 if scaled else width**-0.5)
    inside = (mx.arange(frames) < lengths[:, None])[:, None]
    wide = mx.where(inside[..., None, :], keys, 0).astype(mx.float32)
    scores = laid[:-1].reshape(count, beam, heads, width).swapaxes(1, 2) @ wide
    weights = mx.softmax(mx.where(inside[:, :, None], scores, -mx.inf), axis=-1)
    # An utterance without frames has no weights; numbers behind a length are not multiplied, NaN or not.
    weights = mx.where(inside[:, :, None], weights, 0.0)
    out = weights @ mx.where(inside[..., None], values, 0).astype(mx.float32)
    out = out.swapaxes(1, 2).reshape(count * beam, heads, width)
    out = mx.concatenate([out, mx.zeros((1, heads, width))])
    return out[place].astype(queries.dtype)


def _check_arguments(
    queries: mx.array, keys: mx.array, values: mx.array, utterances: mx.array, lengths: mx.array
) -> tuple[int, int, int]:
    """Rows, heads and width of a head."""
    if queries.ndim != 3 or keys.ndim not in (4, 5) or values.ndim != 4:
        raise ValueError(
            f"cross attention takes queries [rows, heads, width], keys [utterances, heads, width, frames] or "
            f"their tiles [utterances, heads, tiles, width, {TILE}] and values [utterances, heads, frames, "
            f"width], not {queries.shape}, {keys.shape} and {values.shape}"
        )
    rows, heads, width = queries.shape
    count, frames = len(keys), values.shape[2]
    plain, tiles = (count, heads, width, frames), (count, heads, -(-frames // TILE), width, TILE)
    if keys.shape not in (plain, tiles) or values.shape != (count, heads, frames, width):
        raise ValueError(
            f"cross attention: keys {keys.shape} and values {values.shape} do not fit {queries.shape}"
        )
    if utterances.shape != (rows,) or lengths.shape != (count,):
        raise ValueError(
            f"cross attention: {rows} rows of {count} utterances need as many entries in utterances and "
            f"lengths, not {utterances.shape} and {lengths.shape}"
        )
    return rows, heads, width
