"""From the links of an exact lattice to a lattice of words, each arc with the frames of its units.

A state is a node where a word has ended: all its units were emitted and the graph has named it, which may
happen anywhere within the word after determinisation. An arc is the best path from one such node to the next
that spells its word.
"""

import heapq
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernels.search.fixed_point import ONE
from kernels.search.wfst import WfstLinks
from worker.decode.lattice.word_graph import Final, PrunedGraph, WordArc, WordGraph, best_path
from worker.decode.wfst.graph import DecodingGraph
from worker.decode.wfst.nbest import FAR, LatticePart, Utterance, links_within

MOST_LINKS = 10_000
"""A lattice with more links is pruned further before words are built from it."""
_CLOSE = 1e-6

_Key = TypeVar("_Key")
Spellings = tuple[tuple[int, ...], ...]


class _Way(NamedTuple):
    """A position within a word: the word (0 until the graph names it) and the units so far."""

    word: int
    units: tuple[int, ...]


class _Worth(NamedTuple):
    """The total cost, the graph's part of it, and the first and last frame with a unit (-1: none yet)."""

    cost: int
    fused: int
    first: int
    last: int


def word_lattice(
    links: WfstLinks,
    graph: DecodingGraph,
    utterance: Utterance,
    frames: NDArray[np.int64],
    reach: int,
) -> PrunedGraph:
    """The lattice of words within `reach` (65536ths) of the best path, or less if it would have more links
    than MOST_LINKS. frames: the encoder frames that were searched."""
    behind = np.sort(links.behind)
    if len(behind) > MOST_LINKS:
        reach = max(min(reach, int(behind[MOST_LINKS]) - 1), 0)
    part = LatticePart(links_within(links, reach), graph, utterance)
    words = _Words(part, graph, utterance, frames, spells=True).graph()
    if not words.finals or abs(best_path(words) + part.best / ONE) > _CLOSE:
        # The lexicon does not spell the words of the best path: they end where the graph names them.
        words = _Words(part, graph, utterance, frames, spells=False).graph()
    return PrunedGraph(words, reach / ONE)


class _Words:
    """Traverses a lattice word by word."""

    def __init__(
        self,
        part: LatticePart,
        graph: DecodingGraph,
        utterance: Utterance,
        frames: NDArray[np.int64],
        *,
        spells: bool,
    ) -> None:
        self._part, self._graph, self._frames, self._spells = part, graph, frames.tolist(), spells
        arrays = graph.arrays
        arcs = np.array([arc for _, arc in part.rows], np.int64)
        labels = arrays.ilabel[arcs] if len(arcs) else np.zeros(0, np.int32)
        is_loop = graph.sources[arcs] == arrays.next[arcs] if len(arcs) else np.zeros(0, bool)
        self._units = np.where((labels > 1) & ~is_loop, labels - 1, 0).tolist()  # 0: none, or said before
        penalties = np.where((labels > 0) & ~is_loop, utterance.penalty, 0)
        self._fused = (graph.weights[arcs] + penalties).tolist()
        self._spellings: dict[int, Spellings] = {}

    def graph(self) -> WordGraph:
        """The word graph; empty if no path could be spelled."""
        arcs: dict[int, dict[tuple[int, int], _Worth]] = {}
        finals: dict[int, _Worth] = {}
        waiting, known = [self._part.start], {self._part.start}
        while waiting:
            state = heapq.heappop(waiting)
            arcs[state], end = self._onward(state)
            if end is not None:
                finals[state] = end
            for target, _ in arcs[state]:
                if target not in known:
                    known.add(target)
                    heapq.heappush(waiting, target)
        return self._prune(arcs, finals)

    def _onward(self, state: int) -> tuple[dict[tuple[int, int], _Worth], _Worth | None]:
        """The arcs from a state, by target and word, and what ending without another word costs."""
        part = self._part
        inside: dict[int, dict[_Way, _Worth]] = {state: {_Way(0, ()): _Worth(0, 0, -1, -1)}}
        arcs: dict[tuple[int, int], _Worth] = {}
        end: _Worth | None = None
        pending = [state]
        while pending:
            node = heapq.heappop(pending)
            final = part.final[node]
            for way, worth in inside.pop(node).items():
                if way == (0, ()) and final < FAR and (end is None or worth.cost + final < end.cost):
                    end = _Worth(worth.cost + final, worth.fused + final, -1, -1)
                for link in part.out[node]:
                    following, gained = self._step(way, worth, link.cost, link.word, link.place)
                    if following is None:
                        continue
                    if self._is_complete(following):
                        _keep(arcs, (link.target, following.word), gained)
                    if not self._is_complete(following) or self._grows(following):
                        if link.target not in inside:
                            inside[link.target] = {}
                            heapq.heappush(pending, link.target)
                        _keep(inside[link.target], following, gained)
        return arcs, end

    def _step(self, way: _Way, worth: _Worth, cost: int, word: int, place: int) -> tuple[_Way | None, _Worth]:
        if word and way.word:
            return None, worth  # the next word is named before this one was spelled
        units, first, last = way.units, worth.first, worth.last
        if unit := self._units[place]:
            units = (*units, unit)
            last = self._frames[self._part.rows[place][0]]
            first = last if first < 0 else first
        following = _Way(way.word or word, units)
        fused = worth.fused + self._fused[place]
        gained = _Worth(worth.cost + cost, fused, first, last)
        if following.word and not self._is_complete(following) and not self._grows(following):
            return None, gained
        return following, gained

    def _spell_word(self, word: int) -> Spellings:
        if word not in self._spellings:
            name = self._graph.arrays.words[word] if word < len(self._graph.arrays.words) else ""
            self._spellings[word] = self._graph.arrays.lexicon.get(name, ()) if self._spells else ()
        return self._spellings[word]

    def _is_complete(self, way: _Way) -> bool:
        known = self._spell_word(way.word) if way.word else ()
        return bool(way.word) and (not known or way.units in known)

    def _grows(self, way: _Way) -> bool:
        size = len(way.units)
        return any(len(each) > size and each[:size] == way.units for each in self._spell_word(way.word))

    def _prune(self, arcs: dict[int, dict[tuple[int, int], _Worth]], finals: dict[int, _Worth]) -> WordGraph:
        """Only what leads to an end, states numbered in order."""
        lives = set(finals)
        for state in sorted(arcs, reverse=True):
            if any(target in lives for target, _ in arcs[state]):
                lives.add(state)
        order = {state: index for index, state in enumerate(sorted({self._part.start, *lives}))}
        word_arcs = [
            WordArc(
                *(order[state], order[target], self._graph.word(word), max(worth.first, 0)),
                max(worth.first, worth.last, 0) + 1,
                *self._weights(worth, state, self._part.frame_of[target]),
            )
            for state in sorted(lives & arcs.keys())
            for (target, word), worth in sorted(arcs[state].items())
            if target in lives
        ]
        last = len(self._part.moved) - 1
        ends = {order[state]: Final(*self._weights(worth, state, last)) for state, worth in finals.items()}
        return WordGraph(tuple(word_arcs), ends)

    def _weights(self, worth: _Worth, state: int, last: int) -> tuple[float, float]:
        """Acoustic and graph's, of costs from a state to a frame that leave out what all have in common."""
        part = self._part
        before = 0 if state == part.start else int(part.moved[part.frame_of[state]])
        cost = worth.cost + int(part.moved[last]) - before
        return -(cost - worth.fused) / ONE, -worth.fused / ONE


def _keep(known: dict[_Key, _Worth], key: _Key, worth: _Worth) -> None:
    """The cheaper of two; of equals the first."""
    if key not in known or worth.cost < known[key].cost:
        known[key] = worth
