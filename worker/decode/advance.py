"""The prediction network's step for those rows of a search that emitted a label; others keep what they have.

Two ways to the same answer. On a GPU all rows step and a mask chooses: nothing is asked of the device. On a
CPU, where asking costs nothing and every row costs its share, only the rows that need it step.
"""

import mlx.core as mx
import numpy as np

from worker.model.joint import Transducer
from worker.model.prediction import LstmState


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
    if gather is None:
        gather = mx.default_device().type == mx.DeviceType.cpu
    if gather:
        return _some(transducer, labels, np.flatnonzero(np.array(needed)), output, state)
    fresh, stepped = transducer.step(mx.where(needed, labels, 0), state)
    return mx.where(needed[:, None], fresh, output), stepped.where(needed, state)


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
