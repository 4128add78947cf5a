"""The networks of a transducer for those rows of a search that need them; others keep what they have.

Two ways to the same answer. On a GPU all rows step and a mask chooses: nothing is asked of the device. On a
CPU, where asking costs nothing and every row costs its share, only the rows that need it step.
"""

import mlx.core as mx
import numpy as np

from kernels.nn.few_rows import Continued, RowSteps
from kernels.runtime.device import fused
from kernels.search.next_rows import continued_rows, next_rows
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
    """The rows of a beam after a step, output [B * K, J] and state: each from where its ORIGIN says.

    slots: int32 [Field, B, K] of `kernels.search.recombine`. Slots with the same tokens share a row that is
    made once, and rows made behind the same parent share its recurrent product.
    """
    if _should_gather(gather):
        rows = continued_rows(np.array(slots, copy=None)).steps(len(output))
        return _step_rows(transducer, rows, output, state)
    parents, labels, index = _rows(slots)
    fresh, stepped = transducer.step(labels, state.take(parents))
    return _select_rows(output, state, fresh, stepped, index)


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


def joint_logits(
    transducer: Transducer, encoder: mx.array, beam: Beam, output: mx.array, *, gather: bool | None = None
) -> mx.array:
    """The joint of every slot of a beam with its next frame, [B * K, V + 1 + D]; `encoder` [B * T, J].

    Dead slots and those past their utterance's end, a third of a batch of unlike lengths, have no use for
    one: where rows are gathered theirs are zeros.
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
    """Rows before the step and, behind them, of those after it."""

    def chosen(before: mx.array, after: mx.array) -> mx.array:
        return mx.take(mx.concatenate([before, after]), index, axis=0)

    return chosen(output, fresh), LstmState(*map(chosen, state, stepped))


def _should_gather(override: bool | None) -> bool:
    return mx.default_device().type == mx.DeviceType.cpu if override is None else override
