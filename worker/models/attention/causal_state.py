"""What a decoder-only model remembers: keys and values of each utterance's prompt, and its hypotheses' own.

A prompt's columns are computed once and shared by all hypotheses; behind them lie columns of each hypothesis
and step. A table says whose column each step of a hypothesis is, so that reordering moves integers alone.
Knows no weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.models.attention.state import GROWTH


@dataclass(slots=True)
class CausalState:
    """B live utterances of K hypotheses each, behind their prompts.

    keys, values: a layer's pool [B, G, room + capacity * K, D]. Column p < room is the prompt's position p;
    column room + s * K + k was written by hypothesis k at step s. owners: int32 [B, K, capacity], whose
    column each step of a hypothesis is. prompts, steps: int32 [B], positions of the prompt, and steps taken.
    """

    keys: list[mx.array]
    values: list[mx.array]
    owners: mx.array
    prompts: NDArray[np.int32]
    steps: NDArray[np.int32]
    room: int

    @property
    def utterances(self) -> int:
        return len(self.prompts)

    @property
    def beam(self) -> int:
        return int(self.owners.shape[1])

    @property
    def capacity(self) -> int:
        """Steps that the pool has columns for."""
        return int(self.owners.shape[2])

    @property
    def positions(self) -> NDArray[np.int32]:
        """Where the next token of each utterance stands, int32 [B]."""
        return self.prompts + self.steps

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (*self.keys, *self.values, self.owners))

    def grow(self, steps: int) -> None:
        """Makes room for this many steps."""
        missing = steps - self.capacity
        if missing <= 0:
            return
        added = -(-missing // GROWTH) * GROWTH
        columns = [(0, 0), (0, 0), (0, added * self.beam), (0, 0)]
        self.keys = [mx.pad(array, columns) for array in self.keys]
        self.values = [mx.pad(array, columns) for array in self.values]
        self.owners = mx.pad(self.owners, [(0, 0), (0, 0), (0, added)])

    def widen(self, room: int) -> None:
        """Makes room for prompts of this many positions."""
        missing = room - self.room
        if missing <= 0:
            return
        self.keys = [_insert(array, self.room, missing) for array in self.keys]
        self.values = [_insert(array, self.room, missing) for array in self.values]
        self.room = room

    def write(self, layer: int, keys: mx.array, values: mx.array, columns: mx.array) -> None:
        """Puts [B, G, K, D] into columns int32 [B, K]."""
        where = mx.broadcast_to(columns[:, None, :, None], keys.shape)
        self.keys[layer] = mx.put_along_axis(self.keys[layer], where, keys, axis=2)
        self.values[layer] = mx.put_along_axis(self.values[layer], where, values, axis=2)

    def columns(self) -> mx.array:
        """The columns that the hypotheses write at their steps, int32 [B, K]."""
        own = self.room + self.steps[:, None] * self.beam + np.arange(self.beam, dtype=np.int32)
        return mx.array(own.astype(np.int32))

    def claim(self) -> None:
        """Notes each hypothesis as the owner of its column at its step."""
        hypotheses = mx.arange(self.beam, dtype=mx.int32)[None, :, None]
        at_step = mx.array(self.steps)[:, None, None] == mx.arange(self.capacity)
        self.owners = mx.where(at_step, hypotheses, self.owners)

    def places(self) -> mx.array:
        """Where each position of a hypothesis stands in the pool, int32 [B * K, used], for `self_attention`;
        used is the longest history, the present position included."""
        used = int(self.positions.max()) + 1
        at = np.arange(used, dtype=np.int32)
        step = np.maximum(at - self.prompts[:, None], 0)[:, None]
        owners = mx.take_along_axis(self.owners, mx.array(np.minimum(step, self.capacity - 1)), axis=2)
        own = self.room + mx.array(step) * self.beam + owners
        columns = mx.where(mx.array(at < self.prompts[:, None])[:, None], mx.array(at), own)
        size = self.room + self.capacity * self.beam
        rows = mx.arange(self.utterances, dtype=mx.int32) * size
        return (columns + rows[:, None, None]).reshape(self.utterances * self.beam, used)

    def lengths(self) -> mx.array:
        """Positions of each hypothesis, the present one included, int32 [B * K]."""
        return mx.array(np.repeat(self.positions + 1, self.beam).astype(np.int32))

    def select(self, utterances: Sequence[int]) -> "CausalState":
        """These utterances alone, in this order."""
        chosen = mx.array(list(utterances), mx.int32)
        return CausalState(
            [array[chosen] for array in self.keys],
            [array[chosen] for array in self.values],
            self.owners[chosen],
            self.prompts[list(utterances)],
            self.steps[list(utterances)],
            self.room,
        )


def _insert(pool: mx.array, at: int, count: int) -> mx.array:
    """The pool with so many columns of zeros before column `at`."""
    shape = (*pool.shape[:2], count, pool.shape[3])
    return mx.concatenate([pool[:, :, :at], mx.zeros(shape, pool.dtype), pool[:, :, at:]], axis=2)


def join_states(states: Sequence[CausalState]) -> CausalState:
    """The utterances of several states, in order; all of one beam."""
    capacity, room = max(state.capacity for state in states), max(state.room for state in states)
    for state in states:
        state.grow(capacity)
        state.widen(room)
    return CausalState(
        [mx.concatenate(list(arrays)) for arrays in zip(*(state.keys for state in states), strict=True)],
        [mx.concatenate(list(arrays)) for arrays in zip(*(state.values for state in states), strict=True)],
        mx.concatenate([state.owners for state in states]),
        np.concatenate([state.prompts for state in states]),
        np.concatenate([state.steps for state in states]),
        room,
    )
