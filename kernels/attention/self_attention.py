"""Attention of one query a row over the positions before it, whose keys and values stand in a shared pool.

A beam that reorders its hypotheses reorders a table of integers, not megabytes of keys: the table says where
in the pool each position of a row stands. Owns the contract, the plain-MLX reference and the choice; writing
columns and keeping the table are the caller's business.
"""

import mlx.core as mx

from kernels.runtime.device import dtype_name, launch_rows
from kernels.runtime.source import read_kernel

SELF_ATTENTION = read_kernel("attention/self_attention", "queries keys values places lengths", "y")


def self_attention(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    places: mx.array,
    lengths: mx.array,
    *,
    scaled: bool = False,
) -> mx.array:
    """softmax(q·k / √D)·v of each row and head over the row's positions.

    queries: [R, H, D]. keys, values: [P, H, S, D], a pool of P rows with S columns. All float32, float16 or
    bfloat16; products, softmax and sums are float32. places: int32 [R, N], where each position of a row
    stands: pool row * S + column, within the pool (`places_of_parents` where position t is column t of a
    parent's row); read below the row's length only. lengths: int32 [R], positions of each row, 0 to N, the
    new one included; no position gives zeros. scaled: the queries are divided by √D already.

    Returns [R, H, D] in the queries' dtype. Within 5e-6 absolute of the reference in float32 at unit scale.
    A row's bits depend on its own positions alone. D other than a multiple of 32 takes the reference. Raises
    ValueError where shapes do not fit.
    """
    rows, heads, width = _check_arguments(queries, keys, values, places, lengths)
    if width % 32:
        return self_attention_reference(queries, keys, values, places, lengths, scaled=scaled)
    outputs = launch_rows(
        SELF_ATTENTION,
        [queries, keys, values, places.astype(mx.int32), lengths.astype(mx.int32)],
        [(queries.shape, queries.dtype)],
        rows=rows * heads,
        template=(("T", dtype_name(queries.dtype)), ("D", width), ("SCALED", scaled)),
    )
    if outputs is None:
        return self_attention_reference(queries, keys, values, places, lengths, scaled=scaled)
    return outputs[0]


def places_of_parents(parents: mx.array, columns: int) -> mx.array:
    """The places of positions whose columns stand in other rows' pools: parents int32 [R, N] names, of
    position t, the pool's row that holds it in column t of `columns`."""
    return parents * columns + mx.arange(parents.shape[1], dtype=mx.int32)


def self_attention_reference(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    places: mx.array,
    lengths: mx.array,
    *,
    scaled: bool = False,
) -> mx.array:
    """The same in plain MLX: the columns of every row are gathered first."""
    rows, _, width = _check_arguments(queries, keys, values, places, lengths)
    steps = places.shape[1]
    if rows == 0 or steps == 0 or keys.size == 0:
        return mx.zeros_like(queries)
    inside = mx.arange(steps) < lengths[:, None]
    place = mx.where(inside, places, 0)
    row, column = place // keys.shape[2], place % keys.shape[2]

    def gather(pool: mx.array) -> mx.array:
        """[R, H, N, D], zeros behind the lengths."""
        cached = pool[row, :, column]
        return mx.where(inside[..., None, None], cached, 0).astype(mx.float32).swapaxes(1, 2)

    query = queries.astype(mx.float32)[:, :, None] * (1.0 if scaled else width**-0.5)
    scores = mx.where(inside[:, None, None], query @ gather(keys).swapaxes(-1, -2), -mx.inf)
    weights = mx.where(inside[:, None, None], mx.softmax(scores, axis=-1), 0.0)
    return (weights @ gather(values))[:, :, 0].astype(queries.dtype)


def _check_arguments(
    queries: mx.array, keys: mx.array, values: mx.array, places: mx.array, lengths: mx.array
) -> tuple[int, int, int]:
    """Rows, heads and width of a head."""
    if queries.ndim != 3 or keys.ndim != 4 or keys.shape != values.shape:
        raise ValueError(
            f"self attention takes queries [rows, heads, width], keys and values [pool, heads, columns, "
            f"width], not {queries.shape}, {keys.shape} and {values.shape}"
        )
    rows, heads, width = queries.shape
    if keys.shape[1] != heads or keys.shape[3] != width:
        raise ValueError(f"self attention: a pool {keys.shape} does not fit queries {queries.shape}")
    if places.ndim != 2 or len(places) != rows or lengths.shape != (rows,):
        raise ValueError(
            f"self attention: {rows} rows need places [{rows}, positions] and lengths [{rows}], "
            f"not {places.shape} and {lengths.shape}"
        )
    return rows, heads, width
