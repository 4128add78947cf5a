"""The networks of a transducer for those rows of a search that need them; others keep what they have.

Two ways to the same answer. On a GPU all rows step and a mask chooses: nothing is asked of the device. On a
CPU, where asking costs nothing and every row costs its share, only the rows that need it step.
"""

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.runtime.device import fused
from kernels.search.expand import FINISHED
from kernels.search.recombine import Beam, Field
from worker.models.heads.transducer import LstmState, Transducer


def advance(
    transducer: Transducer,
    labels: mx.array,
    needed: mx.array,
    output: mx.array,
    state: LstmState,
    *,
    gather: bool | None = None,
) -> tuple[mx.array, LstmState]:
    """Read `labels` [N] where `needed` (bool [N]) holds; projected output [N, J] and state of every row.

    Labels of other rows are not read. `gather` chooses the way; None takes the device's.
    """
    if _gathers(gather):
        return _some(transducer, labels, np.flatnonzero(np.array(needed)), output, state)
    fresh, stepped = transducer.step(mx.where(needed, labels, 0), state)
    return mx.where(needed[:, None], fresh, output), stepped.where(needed, state)


def reorder(
    transducer: Transducer,
    slots: mx.array,
    output: mx.array,
    state: LstmState,
    *,
    gather: bool | None = None,
) -> tuple[mx.array, LstmState]:
    """The rows of a beam after a step, output [B * K, J] and state: each from where its ORIGIN says.

    slots: int32 [Field, B, K] of `kernels.search.recombine`. Slots with the same tokens share a row that is
    made once, and rows made behind the same parent share its recurrent product.
    """
    if _gathers(gather):
        return _distinct(transducer, np.array(slots, copy=None), output, state)
    parents, labels, index = _rows(slots)
    fresh, stepped = transducer.step(labels, state.take(parents))
    return _either(output, state, fresh, stepped, index)


@fused
def _rows(slots: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    """Of each slot, [B * K]: the row that it continues, the label that it reads, and its row among those
    before the step and, behind them, those after it."""
    batch, beam = slots.shape[1:]
    first = mx.arange(0, batch * beam, beam, dtype=mx.int32)[:, None]
    parents = first + mx.maximum(slots[Field.PARENT, :], 0)
    labels = mx.maximum(slots[Field.LABEL, :], 0)
    origins = slots[Field.ORIGIN, :]
    index = first + mx.where(origins < beam, origins, origins + (batch - 1) * beam)
    return parents.reshape(-1), labels.reshape(-1), index.reshape(-1)


def joined(
    transducer: Transducer, encoder: mx.array, beam: Beam, output: mx.array, *, gather: bool | None = None
) -> mx.array:
    """The joint of every slot of a beam with its next frame, [B * K, V + 1 + D]; `encoder` [B * T, J].

    Dead slots and those past their utterance's end, a third of a batch of unlike lengths, have no use for
    one: where rows are gathered theirs are zeros.
    """
    rows = beam.slots[Field.ROW, :].reshape(-1)
    if _gathers(gather):
        ended = np.array(beam.slots[Field.STATUS, :], copy=None) == FINISHED
        runs = np.flatnonzero(~ended & (np.array(beam.scores, copy=None) > -np.inf))
        # With nearly all of them the smaller product would not pay for putting its rows in their places.
        if len(runs) <= rows.size - rows.size // 8:
            index = mx.array(runs)
            logits = transducer.joined(
                mx.take(encoder, mx.take(rows, index), axis=0), mx.take(output, index, axis=0)
            )
            every = mx.zeros((rows.size, logits.shape[-1]), logits.dtype)
            every[index] = logits
            return every
    return transducer.joined(mx.take(encoder, rows, axis=0), output)


def _distinct(
    transducer: Transducer, slots: NDArray[np.int32], output: mx.array, state: LstmState
) -> tuple[mx.array, LstmState]:
    """`reorder` that steps the rows alone that some slot goes on with."""
    batch, beam = slots.shape[1:]
    rows = batch * beam
    origins, places = slots[Field.ORIGIN, :], np.arange(beam)
    emitting = np.flatnonzero(origins == beam + places)
    first = np.arange(0, rows, beam)[:, None]
    if len(emitting) == 0:
        kept = mx.array((first + origins).reshape(-1))
        return mx.take(output, kept, axis=0), state.take(kept)
    parents, of = np.unique((first + slots[Field.PARENT, :]).reshape(-1)[emitting], return_inverse=True)
    labels = mx.array(slots[Field.LABEL, :].reshape(-1)[emitting])
    shared = None if len(parents) == len(emitting) else mx.array(of.astype(np.int32))
    before = state.take(mx.array(parents if shared is not None else parents[of]))
    fresh, stepped = transducer.step(labels, before, shared)
    number = np.zeros(rows, np.int32)
    number[emitting] = rows + np.arange(len(emitting))
    index = np.where(origins < beam, first + origins, number[(first + origins - beam).clip(0)])
    return _either(output, state, fresh, stepped, mx.array(index.reshape(-1)))


def _either(
    output: mx.array, state: LstmState, fresh: mx.array, stepped: LstmState, index: mx.array
) -> tuple[mx.array, LstmState]:
    """Rows before the step and, behind them, of those after it."""

    def chosen(before: mx.array, after: mx.array) -> mx.array:
        return mx.take(mx.concatenate([before, after]), index, axis=0)

    return chosen(output, fresh), LstmState(*map(chosen, state, stepped))


def _gathers(asked: bool | None) -> bool:
    return mx.default_device().type == mx.DeviceType.cpu if asked is None else asked


def _some(
    transducer: Transducer, labels: mx.array, chosen: np.ndarray, output: mx.array, state: LstmState
) -> tuple[mx.array, LstmState]:
    if len(chosen) == 0:
        return output, state
    if len(chosen) == len(labels):
        return transducer.step(labels, state)
    rows = mx.array(chosen)
    fresh, stepped = transducer.step(labels[rows], state.take(rows))
    hidden, cell = mx.array(state.hidden), mx.array(state.cell)
    output = mx.array(output)
    output[rows], hidden[rows], cell[rows] = fresh, stepped.hidden, stepped.cell
    return output, LstmState(hidden, cell)
