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

from worker.models.attention.state import ColumnPool, join_pools


@dataclass(slots=True)
class CausalState(ColumnPool):
    """B live utterances of K hypotheses each, behind their prompts.

    Column p < room is the prompt's position p; column room + s * K + k was written by hypothesis k at step s.
    prompts: int32 [B], positions of the prompt.
    """

    prompts: NDArray[np.int32]
    room: int

    @property
    def positions(self) -> NDArray[np.int32]:
        return self.prompts + self.steps

    def widen(self, room: int) -> None:
        """Makes room for prompts of this many positions."""
        missing = room - self.room
        if missing <= 0:
            return
        self.keys = [_insert(array, self.room, missing) for array in self.keys]
        self.values = [_insert(array, self.room, missing) for array in self.values]
        self.room = room

    def columns(self) -> mx.array:
        """The columns that the hypotheses write at their steps, int32 [B, K]."""
        own = self.room + self.steps[:, None] * self.beam + np.arange(self.beam, dtype=np.int32)
        return mx.array(own.astype(np.int32))

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

    def select(self, utterances: Sequence[int]) -> "CausalState":
        """These utterances alone, in this order."""
        return CausalState(*self.pick(utterances).arrays, self.prompts[list(utterances)], self.room)


def _insert(pool: mx.array, at: int, count: int) -> mx.array:
    """The pool with so many columns of zeros before column `at`."""
    shape = (*pool.shape[:2], count, pool.shape[3])
    return mx.concatenate([pool[:, :, :at], mx.zeros(shape, pool.dtype), pool[:, :, at:]], axis=2)


def join_states(states: Sequence[CausalState]) -> CausalState:
    """The utterances of several states, in order; all of one beam."""
    room = max(state.room for state in states)
    for state in states:
        state.widen(room)
    return CausalState(*join_pools(states).arrays, np.concatenate([state.prompts for state in states]), room)
