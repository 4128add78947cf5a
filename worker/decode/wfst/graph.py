"""Loads decoding graphs for the search (on the device) and its lattices (in numpy), and maps a graph's units
to the columns of a model's log-probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.search.fixed_point import ONE
from kernels.search.wfst import NEVER, WfstGraph
from spool.errors import InvalidRequest
from spool.graphs.arrays import GraphArrays, read_graph

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DecodingGraph:
    """A validated graph. arrays: those of its file; device: the same in fixed point."""

    arrays: GraphArrays
    device: WfstGraph

    @cached_property
    def sources(self) -> Integers:
        """The state of each arc, [M]."""
        return np.repeat(np.arange(self.arrays.states), np.diff(self.arrays.first))

    @cached_property
    def weights(self) -> Integers:
        """[M], in 65536ths."""
        return np.array(self.device.weights, np.int64)

    @cached_property
    def finals(self) -> Integers:
        """[S], in 65536ths, NEVER where a state is not final."""
        return np.array(self.device.finals, np.int64)

    @cached_property
    def is_upper_case(self) -> bool:
        """Whether all its words are in capitals; they are then lower-cased, as WeNet does."""
        letters = "".join(word for word in self.arrays.words if not word.startswith(("<", "#")))
        return letters.upper() == letters and letters.lower() != letters

    def word(self, label: int) -> str:
        """The word of an output label; empty if the file does not name it."""
        words = self.arrays.words
        text = words[label] if label < len(words) else ""
        return text.lower() if self.is_upper_case else text


def load_graph(path: str) -> DecodingGraph:
    """Load a graph that `spool graph build` wrote. Raises InvalidRequest."""
    return _on_device(read_graph(path))


@lru_cache(maxsize=4)
def _on_device(arrays: GraphArrays) -> DecodingGraph:
    finals = np.full(arrays.states, NEVER, np.int32)
    is_final = np.isfinite(arrays.final)
    finals[is_final] = _grid(arrays.final[is_final])
    columns = (arrays.first, arrays.emitting, arrays.ilabel, arrays.next, _grid(arrays.weight), finals)
    first, emitting, labels, targets, weights, ends = (mx.array(column) for column in columns)
    device = WfstGraph(*(first, emitting, labels, targets, weights, ends), arrays.start, arrays.epsilon_depth)
    mx.eval(*device[:6])
    return DecodingGraph(arrays, device)


def _grid(values: NDArray[np.float32]) -> NDArray[np.int32]:
    return np.floor(values.astype(np.float64) * ONE + 0.5).astype(np.int32)


def unit_columns(graph: GraphArrays, blank: int, *, blank_unit: int | None) -> NDArray[np.int32]:
    """For each unit, blank first, the column of a head's log-probabilities, in which blank is last. A head
    whose own blank was one of its units has a column for that impossible label (`blank_unit`). Raises
    InvalidRequest if the graph and the head have different numbers of units."""
    units = blank + 1 if blank_unit is None else blank
    fits = len(graph.units) == units if graph.units else graph.labels <= units
    if not fits:
        raise InvalidRequest(f"the graph was built for {graph.labels} units, and the model has {units}")
    labels = (label for label in range(blank) if label != blank_unit)
    return np.array([blank, *labels], np.int32)[: max(graph.labels, 1)]


def check_units(graph: GraphArrays, pieces: Sequence[str]) -> None:
    """Raise InvalidRequest if the graph was built for units with other names."""
    graph_units = graph.units
    if not graph_units or tuple(pieces) in (graph_units, graph_units[1:]):
        return
    pairs = zip(graph_units[1:], pieces[1:] if len(pieces) == len(graph_units) else pieces, strict=False)
    other = next((f"; {a!r} stands for {b!r}" for a, b in pairs if a != b), "")
    raise InvalidRequest(
        f"the graph was built for {len(graph_units)} units, and they are not the model's {len(pieces)}{other}"
    )
