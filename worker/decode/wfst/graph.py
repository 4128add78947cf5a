"""A decoding graph as a search and its lattice need it: on the device, and in numpy beside it.

Which units a model has decides which column of its log-probabilities an input label means.
"""

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
    """A graph, checked. arrays: as its file has them; device: the same in fixed point."""

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
    def shouts(self) -> bool:
        """Whether its words are written in capitals throughout; they are read as WeNet reads them, small."""
        letters = "".join(word for word in self.arrays.words if not word.startswith(("<", "#")))
        return letters.upper() == letters and letters.lower() != letters

    def word(self, label: int) -> str:
        """The word of an output label; empty where the file does not say."""
        words = self.arrays.words
        text = words[label] if label < len(words) else ""
        return text.lower() if self.shouts else text


def load_graph(path: str) -> DecodingGraph:
    """The graph of a file of `spool graph build`. Raises InvalidRequest."""
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


def unit_columns(graph: GraphArrays, blank: int, *, blank_first: bool) -> NDArray[np.int32]:
    """Of each unit, blank first, the column of a head's log-probabilities, whose blank is the last. A head
    whose own blank was first (WeNet's) keeps the column of a unit 0 that cannot be. Raises InvalidRequest
    where the graph's units are not as many as the head's."""
    units = blank if blank_first else blank + 1
    fits = len(graph.units) == units if graph.units else graph.labels <= units
    if not fits:
        raise InvalidRequest(f"the graph was built for {graph.labels} units, and the model has {units}")
    return np.array([blank, *range(1 if blank_first else 0, blank)], np.int32)[: max(graph.labels, 1)]


def check_units(graph: GraphArrays, pieces: Sequence[str]) -> None:
    """Raises InvalidRequest where the graph was built for units of other names."""
    graph_units = graph.units
    if not graph_units or tuple(pieces) in (graph_units, graph_units[1:]):
        return
    pairs = zip(graph_units[1:], pieces[1:] if len(pieces) == len(graph_units) else pieces, strict=False)
    other = next((f"; {a!r} stands for {b!r}" for a, b in pairs if a != b), "")
    raise InvalidRequest(
        f"the graph was built for {len(graph_units)} units, and they are not the model's {len(pieces)}{other}"
    )
