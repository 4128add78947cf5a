"""Kaldi's decoders (kaldi-decoder) over a graph of ours: the oracle of the search of decoding graphs.

LatticeSimpleDecoder prunes by its beam alone; FasterDecoder also by the number of states. Log-probabilities
are of units, blank first.
"""

from typing import Any, NamedTuple

import kaldi_decoder
import kaldifst
import numpy as np
from kaldifst.lib import _kaldifst
from numpy.typing import NDArray

from spool.graphs.arrays import GraphArrays
from spool.graphs.build import quiet

Fst = Any
"""A graph or lattice of kaldifst, which has no types."""


class KaldiPath(NamedTuple):
    """A path's cost and output labels, and the input labels of its frames where they were asked for."""

    cost: float
    words: tuple[int, ...]
    labels: tuple[int, ...] = ()


def kaldi_graph(arrays: GraphArrays) -> Fst:
    """The graph as kaldifst has it."""
    graph = kaldifst.StdVectorFst()
    for _ in range(arrays.states):
        graph.add_state()
    graph.start = arrays.start
    source = np.repeat(np.arange(arrays.states), np.diff(arrays.first)).tolist()
    columns = (arrays.ilabel.tolist(), arrays.olabel.tolist(), arrays.weight.tolist(), arrays.next.tolist())
    for state, *arc in zip(source, *columns, strict=True):
        graph.add_arc(state, kaldifst.StdArc(*arc))
    for state in np.flatnonzero(np.isfinite(arrays.final)).tolist():
        graph.set_final(state, float(arrays.final[state]))
    return graph


def fast_path(graph: Fst, log_probs: NDArray[np.float32], beam: float, max_active: int) -> KaldiPath:
    """The best path of FasterDecoder."""
    with quiet():
        options = kaldi_decoder.FasterDecoderOptions(beam=beam, max_active=max_active, min_active=20)
        decoder = kaldi_decoder.FasterDecoder(graph, options)
        decoder.decode(kaldi_decoder.DecodableCtc(log_probs))
        _, path = decoder.get_best_path()
    return _linear(path)


def lattice_paths(
    graph: Fst, log_probs: NDArray[np.float32], beam: float, lattice_beam: float, count: int
) -> list[KaldiPath]:
    """The best different word sequences of LatticeSimpleDecoder's lattice."""
    with quiet():
        config = kaldi_decoder.LatticeSimpleDecoderConfig(beam=beam, lattice_beam=lattice_beam)
        decoder = kaldi_decoder.LatticeSimpleDecoder(graph, config)
        decoder.decode(kaldi_decoder.DecodableCtc(log_probs))
        _, raw = decoder.get_raw_lattice()
        acceptor = _acceptor(raw)
        kaldifst.rmepsilon(acceptor)
        shortest = kaldifst.shortest_path(kaldifst.determinize(acceptor), n=count)
        found = []
        for path in kaldifst.convert_nbest_to_vector(shortest):
            _, _, words, weight = kaldifst.get_linear_symbol_sequence(path)
            found.append(KaldiPath(float(weight.value), tuple(words)))
    return sorted(found)


def _linear(path: Fst) -> KaldiPath:
    _, labels, words, weight = kaldifst.get_linear_symbol_sequence(path)
    return KaldiPath(float(weight.value1 + weight.value2), tuple(words), tuple(labels))


def _acceptor(lattice: Fst) -> Fst:
    """The lattice as an acceptor of words, with one cost an arc."""
    made = kaldifst.StdVectorFst()
    for _ in range(lattice.num_states):
        made.add_state()
    made.start = lattice.start
    for state in range(lattice.num_states):
        end = lattice.final(state)
        if np.isfinite(end.value1):
            made.set_final(state, float(end.value1 + end.value2))
        arcs = _kaldifst._ArcIteratorLattice(lattice, state)
        while not arcs.done:
            arc = arcs.value
            cost = arc.weight.value1 + arc.weight.value2
            made.add_arc(state, kaldifst.StdArc(arc.olabel, arc.olabel, cost, arc.nextstate))
            arcs.next()
    return made
