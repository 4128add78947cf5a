"""What an attention decoder remembers: cross keys and values of each utterance, and its live hypotheses' own.

Cross keys and values are computed once an utterance and shared by its hypotheses. Own keys and values lie in
a pool of columns, one for each hypothesis and position; a parent table says whose column each position of a
hypothesis is, so that reordering moves integers alone. Knows no weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.attention.cross_attention import cross_attention

GROWTH = 64  # positions by which the pool grows


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Utterances that were encoded together: frames [B, T, d], frames of real sound int32 [B], and for each
    decoder layer cross keys in `tile_keys` and values [B, H, T, D]. context: the first frames of each, int32
    [B], that the decoder attends to; None for all T."""

    frames: mx.array
    lengths: NDArray[np.int32]
    cross: tuple[tuple[mx.array, mx.array], ...]
    context: NDArray[np.int32] | None = None

    @property
    def attended(self) -> NDArray[np.int32]:
        """Frames that the decoder attends to, int32 [B]."""
        if self.context is not None:
            return self.context
        return np.full(len(self.lengths), self.frames.shape[1], np.int32)


@dataclass(frozen=True, slots=True)
class EncodedWindow:
    """One utterance of a batch."""

    batch: EncodedBatch
    index: int

    @property
    def frames(self) -> mx.array:
        """Those that the decoder attends to, [T, d]."""
        return self.batch.frames[self.index, : self.batch.attended[self.index]]

    @property
    def length(self) -> int:
        """Encoder frames of real sound."""
        return int(self.batch.lengths[self.index])


@dataclass(frozen=True, slots=True)
class Memory:
    """Cross keys and values of utterances in order; `rows[i]` are those of `batches[i]` that are meant."""

    batches: tuple[EncodedBatch, ...]
    rows: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, windows: Sequence[EncodedWindow]) -> "Memory":
        """Neighbours that were encoded together stay together."""
        batches: list[EncodedBatch] = []
        rows: list[list[int]] = []
        for window in windows:
            if not batches or batches[-1] is not window.batch:
                batches.append(window.batch)
                rows.append([])
            rows[-1].append(window.index)
        return cls(tuple(batches), tuple(map(tuple, rows)))

    def windows(self) -> list[EncodedWindow]:
        """What `of` was given."""
        return [
            EncodedWindow(batch, row)
            for batch, rows in zip(self.batches, self.rows, strict=True)
            for row in rows
        ]

    def cross(self, group: int, layer: int) -> tuple[mx.array, mx.array, mx.array | None]:
        """Keys and values of a group at a layer, copied only where others than neighbours are left, and the
        frames int32 [U] that are attended to, None where it is all of them."""
        batch, rows = self.batches[group], self.rows[group]
        keys, values = batch.cross[layer]
        attended = batch.attended[list(rows)]
        lengths = None if (attended == values.shape[2]).all() else mx.array(attended)
        if rows == tuple(range(rows[0], rows[0] + len(rows))):
            return keys[rows[0] : rows[-1] + 1], values[rows[0] : rows[-1] + 1], lengths
        chosen = mx.array(rows)
        return keys[chosen], values[chosen], lengths

    def attend(self, queries: mx.array, layer: int, beam: int) -> mx.array:
        """Cross attention of `beam` scaled queries an utterance, in order: [U * beam, H, D] -> the same."""
        outputs, first = [], 0
        for batch, rows in zip(self.batches, self.rows, strict=True):
            keys, values = batch.cross[layer]
            own = queries[first : first + len(rows) * beam]
            utterances = mx.array(np.repeat(np.array(rows, np.int32), beam))
            lengths = mx.array(batch.attended)
            repeats = max(rows.count(row) for row in set(rows))
            outputs.append(
                cross_attention(own, keys, values, utterances, lengths, beam=beam * repeats, scaled=True)
            )
            first += len(rows) * beam
        return mx.concatenate(outputs) if len(outputs) > 1 else outputs[0]


@dataclass(slots=True)
class ColumnPool:
    """Own keys and values of B utterances of K hypotheses each.

    keys, values: a layer's pool [B, H, columns, D], K columns for each step and before them those that all
    hypotheses share. owners: int32 [B, K, capacity], whose column each step of a hypothesis is. steps: int32
    [B], that were taken.
    """

    keys: list[mx.array]
    values: list[mx.array]
    owners: mx.array
    steps: NDArray[np.int32]

    @property
    def utterances(self) -> int:
        return len(self.steps)

    @property
    def positions(self) -> NDArray[np.int32]:
        """Where the next token of each utterance stands, int32 [B]."""
        return self.steps

    @property
    def beam(self) -> int:
        return int(self.owners.shape[1])

    @property
    def capacity(self) -> int:
        """Steps that the pool has columns for."""
        return int(self.owners.shape[2])

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (*self.keys, *self.values, self.owners))

    def grow(self, steps: int) -> int:
        """Makes room for this many steps; how many were added."""
        missing = steps - self.capacity
        if missing <= 0:
            return 0
        added = -(-missing // GROWTH) * GROWTH
        columns = [(0, 0), (0, 0), (0, added * self.beam), (0, 0)]
        self.keys = [mx.pad(array, columns) for array in self.keys]
        self.values = [mx.pad(array, columns) for array in self.values]
        self.owners = mx.pad(self.owners, [(0, 0), (0, 0), (0, added)])
        return added

    def write(self, layer: int, keys: mx.array, values: mx.array, columns: mx.array) -> None:
        """Puts [B, H, K, D] into columns int32 [B, K]."""
        where = mx.broadcast_to(columns[:, None, :, None], keys.shape)
        self.keys[layer] = mx.put_along_axis(self.keys[layer], where, keys, axis=2)
        self.values[layer] = mx.put_along_axis(self.values[layer], where, values, axis=2)

    def claim(self) -> None:
        """Notes each hypothesis as the owner of its column at its utterance's step."""
        hypotheses = mx.arange(self.beam, dtype=mx.int32)[None, :, None]
        at_step = mx.array(self.steps)[:, None, None] == mx.arange(self.capacity)
        self.owners = mx.where(at_step, hypotheses, self.owners)

    def reorder(self, parents: mx.array) -> None:
        """Hypothesis k of utterance b goes on from its hypothesis parents[b, k]: no key or value moves."""
        self.owners = mx.take_along_axis(self.owners, parents[:, :, None], axis=1)

    def lengths(self) -> mx.array:
        """Positions of each hypothesis, the present one included, int32 [B * K]."""
        return mx.array(np.repeat(self.positions + 1, self.beam).astype(np.int32))

    def pick(self, utterances: Sequence[int]) -> "ColumnPool":
        """These utterances alone, in this order."""
        chosen = mx.array(list(utterances), mx.int32)
        return ColumnPool(
            [array[chosen] for array in self.keys],
            [array[chosen] for array in self.values],
            self.owners[chosen],
            self.steps[list(utterances)],
        )

    @property
    def arrays(self) -> tuple[list[mx.array], list[mx.array], mx.array, NDArray[np.int32]]:
        return self.keys, self.values, self.owners, self.steps


def join_pools(pools: Sequence[ColumnPool]) -> ColumnPool:
    """The utterances of several pools, in order; all of one beam."""
    capacity = max(pool.capacity for pool in pools)
    for pool in pools:
        pool.grow(capacity)
    return ColumnPool(
        [mx.concatenate(list(arrays)) for arrays in zip(*(pool.keys for pool in pools), strict=True)],
        [mx.concatenate(list(arrays)) for arrays in zip(*(pool.values for pool in pools), strict=True)],
        mx.concatenate([pool.owners for pool in pools]),
        np.concatenate([pool.steps for pool in pools]),
    )


@dataclass(slots=True)
class DecoderState(ColumnPool):
    """B live utterances of K hypotheses each.

    Column s * K + k was written by hypothesis k at position s. queries: with which the alignment heads heard
    the frames at each position, [B, heads, capacity, D], where they are kept; of one hypothesis alone.
    """

    memory: Memory
    queries: mx.array | None = None

    def grow(self, steps: int) -> int:
        added = ColumnPool.grow(self, steps)
        if added and self.queries is not None:
            self.queries = mx.pad(self.queries, [(0, 0), (0, 0), (0, added), (0, 0)])
        return added

    def keep_queries(self, queries: mx.array) -> None:
        """Puts [B, heads, D] of the alignment heads at the utterances' positions."""
        assert self.queries is not None
        where = mx.array(self.steps)[:, None, None, None]
        where = mx.broadcast_to(where, (*queries.shape[:2], 1, queries.shape[2]))
        self.queries = mx.put_along_axis(self.queries, where, queries[:, :, None], axis=2)

    def columns(self) -> mx.array:
        """The columns that the hypotheses write at their positions, int32 [B, K]."""
        return mx.array(self.steps[:, None] * self.beam + np.arange(self.beam, dtype=np.int32))

    def places(self) -> mx.array:
        """Where each position of a hypothesis stands in the pool, int32 [B * K, used], for `self_attention`;
        used is the longest history, the present position included."""
        used = int(self.steps.max()) + 1
        columns = self.owners[:, :, :used] + mx.arange(used, dtype=mx.int32) * self.beam
        rows = mx.arange(self.utterances, dtype=mx.int32) * (self.capacity * self.beam)
        return (columns + rows[:, None, None]).reshape(self.utterances * self.beam, used)

    def select(self, utterances: Sequence[int]) -> "DecoderState":
        """These utterances alone, in this order."""
        windows = self.memory.windows()
        return DecoderState(
            *self.pick(utterances).arrays,
            Memory.of([windows[row] for row in utterances]),
            None if self.queries is None else self.queries[mx.array(list(utterances), mx.int32)],
        )


def empty_state(
    windows: Sequence[EncodedWindow],
    beam: int,
    layers: int,
    heads: tuple[int, int],
    positions: int,
    dtype: mx.Dtype,
) -> DecoderState:
    """Utterances without history; room for `positions`. heads: how many, and the width of one."""
    count = len(windows)
    capacity = max(GROWTH, -(-positions // GROWTH) * GROWTH)
    shape = (count, heads[0], capacity * beam, heads[1])
    return DecoderState(
        [mx.zeros(shape, dtype) for _ in range(layers)],
        [mx.zeros(shape, dtype) for _ in range(layers)],
        mx.zeros((count, beam, capacity), mx.int32),
        np.zeros(count, np.int32),
        Memory.of(windows),
    )


def join_states(states: Sequence[DecoderState]) -> DecoderState:
    """The utterances of several states, in order; all of one beam."""
    pool = join_pools(states)
    return DecoderState(
        *pool.arrays,
        Memory.of([window for state in states for window in state.memory.windows()]),
        mx.concatenate(kept) if (kept := [s.queries for s in states if s.queries is not None]) else None,
    )
