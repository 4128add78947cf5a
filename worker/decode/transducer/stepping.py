"""Runs a transducer's networks for the rows of a search that need them; the others keep their state.

There are two ways to the same result. On a GPU all rows step and a mask selects, so nothing is read back. On
a CPU, where reading back is free and every row costs time, only the rows that need it step.
"""

import mlx.core as mx
import numpy as np

from kernels.nn.few_rows import Continued, RowSteps
from kernels.runtime.device import fuse
from kernels.search.next_rows import continue_rows, next_rows
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
    """Feed `labels` [N] to the rows where `needed` (bool [N]) is true; the projected output [N, J] and state
    of every row. `gather` steps only the needed rows; None chooses by device.
    """
    if _should_gather(gather):
        read = np.where(np.array(needed), np.array(labels), -1).astype(np.int32)
        if (read < 0).all():
            return output, state
        rows = Continued(np.arange(len(read), dtype=np.int32), read).steps(len(read))
        return _step_rows(transducer, rows, output, state)
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
    """The rows of a beam after a step, output [B * K, J] and state, each from its slot's ORIGIN.

    slots: int32 [Field, B, K] of `kernels.search.recombine`. Slots with the same tokens share one new row,
    and new rows with the same parent share its recurrent product.
    """
    if _should_gather(gather):
        rows = continue_rows(np.array(slots, copy=None)).steps(len(output))
        return _step_rows(transducer, rows, output, state)
    parents, labels, index = _rows(slots)
    fresh, stepped = transducer.step(labels, state.take(parents))
    return _select_rows(output, state, fresh, stepped, index)


@fuse
def _rows(slots: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    """For each slot, [B * K]: the row it continues, the label it reads, and its index in the rows from before
    the step followed by those from after it."""
    batch, beam = slots.shape[1:]
    first = mx.arange(0, batch * beam, beam, dtype=mx.int32)[:, None]
    parents = first + mx.maximum(slots[Field.PARENT, :], 0)
    labels = mx.maximum(slots[Field.LABEL, :], 0)
    origins = slots[Field.ORIGIN, :]
    index = first + mx.where(origins < beam, origins, origins + (batch - 1) * beam)
    return parents.reshape(-1), labels.reshape(-1), index.reshape(-1)


def joint_logits(
    transducer: Transducer, encoder: mx.array, beam: Beam, output: mx.array, *, gather: bool | None = None
) -> mx.array:
    """The joint of every slot of a beam with its next frame, [B * K, V + 1 + D]; `encoder` [B * T, J].

    Dead slots and those past their utterance's end (a third of a batch of unequal lengths) do not need it;
    where rows are gathered, theirs are zeros.
    """
    if _should_gather(gather):
        return transducer.join_rows(encoder, output, next_rows(beam.slots, beam.scores).joined)
    return transducer.joint_logits(mx.take(encoder, beam.slots[Field.ROW, :].reshape(-1), axis=0), output)


def _step_rows(
    transducer: Transducer, rows: RowSteps, output: mx.array, state: LstmState
) -> tuple[mx.array, LstmState]:
    output, layers = transducer.go_on(rows, output, state.layers())
    return output, LstmState.of_layers(layers)


def _select_rows(
    output: mx.array, state: LstmState, fresh: mx.array, stepped: LstmState, index: mx.array
) -> tuple[mx.array, LstmState]:
    """Select rows by index from those before the step followed by those after it."""

    def pick(before: mx.array, after: mx.array) -> mx.array:
        return mx.take(mx.concatenate([before, after]), index, axis=0)

    return pick(output, fresh), LstmState(*map(pick, state, stepped))


def _should_gather(override: bool | None) -> bool:
    return mx.default_device().type == mx.DeviceType.cpu if override is None else override
