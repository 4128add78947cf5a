"""Which rows a transducer's networks compute after a step of the beam.

For each slot, the row of the network's state that it continues and the label it reads there; and which slots
have a frame to be joined with. The kernel and the reference agree exactly: both compute integers.
"""

from typing import NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.nn.few_rows import Continued, RowSteps, Steps
from kernels.runtime.device import launch
from kernels.runtime.source import read_kernel
from kernels.search.expand import FINISHED
from kernels.search.recombine import Field

NEXT_ROWS = read_kernel(
    "search/next_rows",
    "slots_of scores",
    "rows products upper_rows upper_products kept joined running",
)


class NextRows(NamedTuple):
    """For N = B * K slots. steps: those of the prediction network. joined: int32 [2, N], for `joint_rows`:
    the row of the slot's frame (-1 if the slot is not running) and the slot's own row. running: int32 [1],
    the number of running slots."""

    steps: RowSteps
    joined: mx.array
    running: mx.array


def next_rows_reference(slots: mx.array, scores: mx.array) -> NextRows:
    """As `next_rows`, in numpy."""
    fields, held = np.array(slots, copy=None), np.array(scores, copy=None)
    runs = (fields[Field.STATUS] != FINISHED) & (held > -np.inf)
    frames = np.where(runs, fields[Field.ROW], -1).reshape(-1)
    joined = mx.array(np.stack([frames, np.arange(frames.size)]).astype(np.int32))
    steps = continue_rows(fields).steps(held.size)
    return NextRows(steps, joined, mx.array([int(runs.sum())], mx.int32))


def continue_rows(slots: NDArray[np.int32]) -> Continued:
    """For each slot of [Field, B, K], the row of the network's state that it continues."""
    beam = slots.shape[2]
    first = np.arange(0, slots[0].size, beam, dtype=np.int32)[:, None]
    origins = slots[Field.ORIGIN]
    reads = origins >= beam
    # The slot whose label and parent it takes; unused where it keeps a row.
    of = np.where(reads, first + origins - beam, 0)
    parents, labels = (slots[field].reshape(-1)[of] for field in (Field.PARENT, Field.LABEL))
    sources = first + np.where(reads, parents, origins)
    return Continued(sources.reshape(-1), np.where(reads, labels, -1).reshape(-1))


def next_rows(slots: mx.array, scores: mx.array) -> NextRows:
    """The rows after a step: slots int32 [Field, B, K] and scores [B, K] as `recombine` leaves them."""
    batch, beam = scores.shape
    many = batch * beam
    outputs = launch(
        NEXT_ROWS,
        [slots, scores],
        [((rows, many), mx.int32) for rows in (3, 2, 3, 2, 2, 2)] + [((1,), mx.int32)],
        groups=1,
        template=(("K", beam),),
    )
    if outputs is None:
        return next_rows_reference(slots, scores)
    steps = RowSteps(Steps(*outputs[:2]), Steps(*outputs[2:4]), outputs[4])
    return NextRows(steps, outputs[5], outputs[6])
