"""Few rows times a large matrix: a joint, a step of an LSTM for some rows of a state, a projection of some.

What a search does at each step, with 1 to some 60 rows. A CPU's BLAS copies the matrix at each product before
it multiplies; here it lies in the order in which it is read, once for the model (`pack_rows`, `pack_gates`).
What stands before the product (rows taken from here and there, added, activated) and behind it (the cell;
rows that only change places) is done beside it.

Each operation: its contract, its plain-MLX reference, its kernel and the choice between them. Float32 takes
the kernel on a CPU; elsewhere the references run, made of MLX's products. A row's sums run over its inputs in
their order: it has the same bits whatever rows stand beside it, and a NaN stays in its row.
"""

from typing import NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.nn.elementwise import lstm_cell
from kernels.runtime.device import Backend, backend, launch
from kernels.runtime.source import read_kernel

FEW_ROWS = read_kernel("nn/few_rows", "left right pairs weights bias", "y", "few_rows.h")
LSTM_ROWS = read_kernel(
    "nn/lstm_rows", "entering below hidden cell rows products weights", "o_hidden o_cell", "few_rows.h"
)
_TILE = 32
_TILES = 6  # of a threadgroup: its rows are gathered once for all of them
_SIMDGROUPS = 4

ACTIVATIONS = ("relu", "sigmoid", "tanh")


class Packed(NamedTuple):
    """A matrix [O, I] with what is added to its products, as it is and as the kernel reads it.

    matrix: [O, I]; bias: [O]; tiles: [ceil(O / 32), I, 32], zeros behind the last column; None where no
    kernel would read it."""

    matrix: mx.array
    bias: mx.array
    tiles: mx.array | None


class PackedGates(NamedTuple):
    """An LSTM layer: what its gates take in from its state, and from the layer below where there is one.

    recurrent: [4H, H]; below: [4H, H] or None; entering: [V, 4H], what is added for each label, or [1, 4H],
    the bias, where there is a layer below. tiles: [ceil(H / 32), 4, H or 2H, 32] or None."""

    recurrent: mx.array
    below: mx.array | None
    entering: mx.array
    tiles: mx.array | None


class Steps(NamedTuple):
    """What N rows of an LSTM's state go on from.

    rows: int32 [3, N], of each new row the row before that it goes on from, the label that it reads (-1:
    none, the row is kept) and which of `products` it takes. products: int32 [2, N], the row before of each,
    and the row of the layer below; -1 behind the last."""

    rows: mx.array
    products: mx.array


class RowSteps(NamedTuple):
    """A step of a whole stack. first, upper: of the lowest layer, and of those above it. kept: int32 [2, N],
    for `project_rows` of the highest's output."""

    first: Steps
    upper: Steps
    kept: mx.array


class Continued(NamedTuple):
    """Rows that go on from others, [N] each: `sources`, the row that each goes on from, and `labels`, what it
    reads there, -1 where it keeps what that row has."""

    sources: NDArray[np.int32]
    labels: NDArray[np.int32]

    def steps(self, rows: int) -> RowSteps:
        """Of a stack whose state has `rows` rows. In the first layer a product is made once for each row that
        others read behind."""
        reading = np.flatnonzero(self.labels >= 0)
        parents = self.sources[reading]
        is_read = np.zeros(rows, bool)
        is_read[parents] = True
        distinct = np.flatnonzero(is_read)
        own = np.arange(len(self.labels))
        kept = np.stack([np.where(self.labels >= 0, own, -1), self.sources]).astype(np.int32)
        return RowSteps(
            self._steps(reading, (np.cumsum(is_read) - 1)[parents], distinct, distinct),
            self._steps(reading, np.arange(len(reading)), parents, reading),
            mx.array(kept),
        )

    def _steps(
        self,
        reading: NDArray[np.int64],
        places: NDArray[np.int64],
        parents: NDArray[np.integer],
        below: NDArray[np.int64],
    ) -> Steps:
        rows = np.zeros((3, len(self.labels)), np.int32)
        rows[0], rows[1], rows[2, reading] = self.sources, self.labels, places
        products = np.full((2, len(self.labels)), -1, np.int32)
        products[0, : len(parents)], products[1, : len(below)] = parents, below
        return Steps(mx.array(rows), mx.array(products))


def pack_rows(matrix: mx.array, bias: mx.array) -> Packed:
    """`matrix` [O, I] and `bias` [O] for `joint_rows` and `project_rows`."""
    return Packed(matrix, bias, _tiles(matrix) if _takes_kernel(matrix) else None)


def pack_gates(recurrent: mx.array, below: mx.array | None, entering: mx.array) -> PackedGates:
    """As the fields of `PackedGates`, gates in the order of PyTorch: input, forget, candidate, output."""
    tiles = None
    if _takes_kernel(recurrent):
        inputs = recurrent if below is None else mx.concatenate([recurrent, below], axis=1)
        tiles = mx.contiguous(mx.stack([_tiles(gate) for gate in mx.split(inputs, 4)], axis=1))
        mx.eval(tiles)
    return PackedGates(recurrent, below, entering, tiles)


def _takes_kernel(matrix: mx.array) -> bool:
    return backend() is not Backend.REFERENCE and matrix.dtype == mx.float32


def _tiles(matrix: mx.array) -> mx.array:
    columns, inputs = matrix.shape
    tiles = -(-columns // _TILE)
    filled = mx.pad(matrix, [(0, tiles * _TILE - columns), (0, 0)])
    packed = mx.contiguous(filled.reshape(tiles, _TILE, inputs).transpose(0, 2, 1))
    mx.eval(packed)
    return packed


def joint_rows_reference(
    left: mx.array, right: mx.array, pairs: mx.array, packed: Packed, activation: str
) -> mx.array:
    """As `joint_rows`, in plain MLX."""
    at = mx.maximum(pairs, 0)
    joined = mx.take(left, at[0], axis=0) + mx.take(right, at[1], axis=0)
    match activation:
        case "relu":
            joined = mx.maximum(joined, 0)
        case "sigmoid":
            joined = mx.sigmoid(joined)
        case _:
            joined = mx.tanh(joined)
    product = mx.addmm(packed.bias, joined, packed.matrix.T)
    return mx.where(pairs[0][:, None] >= 0, product, 0)


def joint_rows(left: mx.array, right: mx.array, pairs: mx.array, packed: Packed, activation: str) -> mx.array:
    """W act(left[pairs[0]] + right[pairs[1]]) + b, [N, O]; zeros where pairs[0] is -1.

    left: [L, I], right: [R, I], pairs: int32 [2, N]; activation: one of `ACTIVATIONS`. Within 1e-5 relative
    of the reference at unit scale.
    """
    outputs = _product(left, right, pairs, packed, activation)
    return joint_rows_reference(left, right, pairs, packed, activation) if outputs is None else outputs


def project_rows_reference(fresh: mx.array, before: mx.array, pairs: mx.array, packed: Packed) -> mx.array:
    """As `project_rows`, in plain MLX."""
    at = mx.maximum(pairs, 0)
    fresh = fresh.reshape(-1, fresh.shape[-1])
    product = mx.addmm(packed.bias, mx.take(fresh, at[0], axis=0), packed.matrix.T)
    return mx.where(pairs[0][:, None] >= 0, product, mx.take(before, at[1], axis=0))


def project_rows(fresh: mx.array, before: mx.array, pairs: mx.array, packed: Packed) -> mx.array:
    """W fresh[pairs[0]] + b, [N, O]; before[pairs[1]] as it stands where pairs[0] is -1.

    fresh: [F, I] or [F, 1, I], before: [R, O], pairs: int32 [2, N]. Within 1e-5 relative of the reference at
    unit scale.
    """
    outputs = _product(fresh, before, pairs, packed, None)
    return project_rows_reference(fresh, before, pairs, packed) if outputs is None else outputs


def _product(
    left: mx.array, right: mx.array, pairs: mx.array, packed: Packed, activation: str | None
) -> mx.array | None:
    if packed.tiles is None or left.dtype != mx.float32:
        return None
    tiles, inputs, _ = packed.tiles.shape
    outputs = launch(
        FEW_ROWS,
        [left, right, pairs, packed.tiles, packed.bias],
        [((pairs.shape[1], packed.bias.shape[0]), mx.float32)],
        groups=-(-tiles // _TILES),
        simdgroups=_SIMDGROUPS,
        template=(
            ("I", inputs),
            ("TILES", _TILES),
            ("JOINS", activation is not None),
            ("RELU", activation == "relu"),
            ("TANH", activation == "tanh"),
        ),
    )
    return None if outputs is None else outputs[0]


def lstm_rows_reference(
    packed: PackedGates, steps: Steps, hidden: mx.array, cell: mx.array, below: mx.array | None
) -> tuple[mx.array, mx.array]:
    """As `lstm_rows`, in plain MLX."""
    shape = (-1, *hidden.shape[1:])
    hidden, cell = (each.reshape(-1, each.shape[-1]) for each in (hidden, cell))
    source, labels, place = steps.rows[0], steps.rows[1], steps.rows[2]
    kept = mx.take(hidden, source, axis=0), mx.take(cell, source, axis=0)
    products = mx.maximum(steps.products, 0)
    product = mx.take(hidden, products[0], axis=0) @ packed.recurrent.T
    entering = mx.take(packed.entering, mx.maximum(labels, 0), axis=0)
    if packed.below is not None and below is not None:
        below = below.reshape(-1, below.shape[-1])
        product = product + mx.take(below, products[1], axis=0) @ packed.below.T
        entering = packed.entering
    recurrent = mx.take(product, place, axis=0)
    stepped = lstm_cell(mx.broadcast_to(entering, recurrent.shape), recurrent, kept[1])
    reads = labels[:, None] >= 0
    after = [mx.where(reads, *each).reshape(shape) for each in zip(stepped, kept, strict=True)]
    return after[0], after[1]


def lstm_rows(
    packed: PackedGates, steps: Steps, hidden: mx.array, cell: mx.array, below: mx.array | None = None
) -> tuple[mx.array, mx.array]:
    """A layer's next hidden and cell state, [N, H] each, of [P, H] before (or [N, 1, H] of [P, 1, H]).

    below: [N, H] or [N, 1, H], of the layer below, None for the first. A row keeps its state to the bit where
    it reads no label. Within 1e-6 absolute of the reference at unit scale.
    """
    outputs = None
    if packed.tiles is not None and hidden.dtype == mx.float32:
        outputs = launch(
            LSTM_ROWS,
            [packed.entering, hidden if below is None else below, hidden, cell, *steps, packed.tiles],
            [((steps.rows.shape[1], *hidden.shape[1:]), mx.float32)] * 2,
            groups=packed.tiles.shape[0],
            simdgroups=_SIMDGROUPS,
            template=(("H", hidden.shape[-1]), ("UPPER", packed.below is not None)),
        )
    if outputs is None:
        return lstm_rows_reference(packed, steps, hidden, cell, below)
    return outputs[0], outputs[1]
