"""A beam's hypotheses of one utterance as a graph of prefixes: the lattice of tokens.

A node is a token sequence with which some kept hypothesis began. Its mass is the probability of all kept
alignments that reach it (the sum for transducers; the best one for CTC, as in that search), so the masses
along a finished hypothesis lead exactly to its score. Recombination makes them sums.

A prefix that the beam pruned has no end of its own. If it was on the same frame as a surviving prefix, with
the same word so far and no better score, it takes that one's future: a link, whose price is the difference of
the two scores where they last met. A linked path is therefore never better than the kept path it follows,
and the best path is the search's own. (Path merging by limited context, after "Less Is More: Improved RNN-T
Decoding Using Limited Label Context and Path Merging", Prabhavalkar et al., 2021, but after the search.)
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

LOG_ZERO = -math.inf

Begins = Callable[[int, int], bool]
_Exit = tuple[float, int, int]  # score, step, slot
_Place = tuple[int, int, tuple[int, ...]]  # frame, mark, word so far


@dataclass(frozen=True, slots=True)
class Record:
    """The steps of one utterance's beam; arrays are [S, K].

    labels: int32, the label emitted, -1 where none was. frames: int32, the frame of emission. durations:
    int32, in frames. parents: int32, the slot continued. gained: float32, the score before recombination,
    -inf = dead. scores: float32, after it. ends: float32 [K], the final scores. length: the utterance's
    frames. sums: recombination adds probabilities. fused: float32, fusion's gain in this step, and closing:
    float32 [K], that for the end; None without fusion. marks: int32, what distinguishes hypotheses besides
    tokens and frame; None if nothing does.
    """

    labels: NDArray[np.int32]
    frames: NDArray[np.int32]
    durations: NDArray[np.int32]
    parents: NDArray[np.int32]
    gained: NDArray[np.float32]
    scores: NDArray[np.float32]
    ends: NDArray[np.float32]
    length: int
    sums: bool = True
    fused: NDArray[np.float32] | None = None
    closing: NDArray[np.float32] | None = None
    marks: NDArray[np.int32] | None = None


@dataclass(slots=True)
class Prefix:
    """One node. `mass` and `final` are natural logs; `fused` is the part of `mass` that fusion gave, and
    `closing` that of `final` beyond it. `frame` is where its last token was emitted. `link` is the prefix
    whose future this one takes, and `price` what that costs."""

    parent: int
    label: int
    word: tuple[int, ...] = ()  # tokens of the word so far
    mass: float = LOG_ZERO
    fused: float = 0.0
    frame: int = -1
    duration: int = 0
    final: float = LOG_ZERO
    closing: float = 0.0
    lives: bool = False
    link: int = -1
    price: float = 0.0
    children: list[int] = field(default_factory=list)


def prefix_graph(record: Record, begins: Begins) -> list[Prefix]:
    """The graph; node 0 is the empty prefix, and children come after their parents.

    begins(before, label): whether `label` begins a word after `before` (-1 at the start). `lives` marks nodes
    that lead to an end of their own; links lead others to one, and the rest lead nowhere.
    """
    return _Builder(record, begins).build()


class _Builder:
    def __init__(self, record: Record, begins: Begins) -> None:
        self._begins = begins
        self._record = record
        self._nodes = [Prefix(-1, -1, mass=0.0)]
        self._index: dict[tuple[int, int], int] = {}
        steps = _count_moving_steps(record)
        self._labels = record.labels[:steps].tolist()
        self._parents = np.maximum(record.parents[:steps], 0).tolist()
        self._gained = record.gained[:steps].tolist()
        self._scores = record.scores[:steps].tolist()
        self._after = (record.frames[:steps] + record.durations[:steps]).tolist()
        self._marks = None if record.marks is None else record.marks.tolist()
        self._ids: list[list[int]] = []

    def build(self) -> list[Prefix]:
        self._read()
        exits = self._finish()
        self._mark_living()
        exits += self._link()
        self._set_frames(exits)
        return self._nodes

    def _read(self) -> None:
        """Set the prefix that each slot holds after each step, and the masses."""
        beam = self._record.labels.shape[1]
        current = [0] * beam
        masses: list[list[float]] = [[]]
        for labels, parents, gained in zip(self._labels, self._parents, self._gained, strict=True):
            after = []
            for label, parent, score in zip(labels, parents, gained, strict=True):
                held = current[parent]
                if label >= 0 and score > LOG_ZERO:
                    child = self._index.get((held, label))
                    if child is None:
                        child = self._grow(held, label)
                        masses.append([])
                    masses[child].append(score)
                    held = child
                after.append(held)
            current = after
            self._ids.append(current)
        for node, parts in zip(self._nodes[1:], masses[1:], strict=True):
            node.mass = log_sum_exp(parts) if self._record.sums else max(parts)

    def _grow(self, parent: int, label: int) -> int:
        before = self._nodes[parent]
        fresh = self._begins(before.label, label)
        node = Prefix(parent, label, ((label,) if fresh else (*before.word, label)))
        self._index[parent, label] = child = len(self._nodes)
        self._nodes.append(node)
        before.children.append(child)
        return child

    def _finish(self) -> list[_Exit]:
        """Set the ends: hypotheses kept to the last step, and finished ones that the beam dropped before."""
        record, last = self._record, len(self._ids) - 1
        totals: dict[int, list[float]] = {}
        exits: list[_Exit] = []
        for slot, score in enumerate(record.ends.tolist()):
            if score == LOG_ZERO:
                continue
            at = self._slot_before(slot)
            prefix = self._ids[last][at] if self._ids else 0
            totals.setdefault(prefix, []).append(score)
            exits.append((score, last, at))
            if record.closing is not None:
                self._nodes[prefix].closing = float(record.closing[slot])
        if record.fused is None and totals:
            for score, step, slot in self._find_dropped(max(score for score, _, _ in exits)):
                prefix = self._ids[step][slot]
                if prefix not in totals:
                    totals[prefix] = [score]
                    exits.append((score, step, slot))
        for prefix, scores in totals.items():
            self._nodes[prefix].final = log_sum_exp(scores) if record.sums else max(scores)
        return exits

    def _slot_before(self, slot: int) -> int:
        """The slot from which a slot of the last step descends, at the last step that moved a hypothesis."""
        for step in range(len(self._record.parents) - 1, len(self._ids) - 1, -1):
            slot = max(int(self._record.parents[step, slot]), 0)
        return slot

    def _find_dropped(self, best: float) -> Iterator[_Exit]:
        """Finished hypotheses that were dropped, latest first, except those better than the best one kept, so
        that the graph's best path is the search's."""
        scores = self._record.scores[: len(self._ids)]
        after = np.array(self._after, np.int32).reshape(scores.shape)
        done = (after >= self._record.length) & (scores <= best)
        for step, slot in np.argwhere(done & (scores > LOG_ZERO))[::-1].tolist():
            yield self._scores[step][slot], step, slot

    def _mark_living(self) -> None:
        for node in reversed(self._nodes):
            node.lives = node.lives or node.final > LOG_ZERO
            if node.lives and node.parent >= 0:
                self._nodes[node.parent].lives = True

    def _link(self) -> list[_Exit]:
        """Link dead prefixes to the best living one that they last met. Returns their exits."""
        best: dict[_Place, tuple[float, int]] = {}
        dead: list[tuple[_Place, _Exit]] = []
        for step, ids in enumerate(self._ids):
            for slot, score in enumerate(self._scores[step]):
                if score == LOG_ZERO:
                    continue
                node = self._nodes[ids[slot]]
                mark = self._marks[step][slot] if self._marks else 0
                place = (self._after[step][slot], mark, node.word)
                if not node.lives:
                    dead.append((place, (score, step, slot)))
                elif place not in best or score > best[place][0]:
                    best[place] = (score, ids[slot])
        exits: dict[int, _Exit] = {}
        for place, (score, step, slot) in dead:
            kept, target = best.get(place, (LOG_ZERO, -1))
            if kept >= score:
                prefix = self._ids[step][slot]
                node = self._nodes[prefix]
                node.link = target
                # Both have moved since their last token; the scores where they met count.
                node.price = (score - node.mass) - (kept - self._nodes[target].mass)
                exits[prefix] = (score, step, slot)
        return list(exits.values())

    def _set_frames(self, exits: list[_Exit]) -> None:
        """Set the frames and the fusion score of each node, as on the best path through it."""
        record = self._record
        fused = _accumulate_fusion(record)
        for _, last, slot in sorted(exits, key=lambda way: (-way[0], -way[1], way[2])):
            at = slot
            for step in range(last, -1, -1):
                if self._labels[step][at] >= 0:
                    node = self._nodes[self._ids[step][at]]
                    if node.frame >= 0:
                        break  # and so are all before it
                    node.frame = int(record.frames[step, at])
                    node.duration = int(record.durations[step, at])
                    node.fused = float(fused[step, at]) if fused is not None else 0.0
                at = self._parents[step][at]


def _accumulate_fusion(record: Record) -> NDArray[np.float32] | None:
    """Fusion's accumulated gain of each slot, [S, K]."""
    if record.fused is None:
        return None
    total = np.zeros_like(record.fused)
    so_far = np.zeros_like(record.fused[0])
    for step, gave in enumerate(record.fused):
        so_far = so_far[np.maximum(record.parents[step], 0)] + gave
        total[step] = so_far
    return total


def _count_moving_steps(record: Record) -> int:
    """The number of steps before all hypotheses are only carried on."""
    moves = (record.gained > -np.inf) & ((record.labels >= 0) | (record.durations > 0))
    if record.marks is not None:
        return min(record.length, len(record.labels))
    moving = np.flatnonzero(moves.any(axis=1))
    return int(moving[-1]) + 1 if len(moving) else 0


def log_sum_exp(values: list[float]) -> float:
    """log of the sum of exponentials, in one fixed order."""
    if len(values) == 1:
        return values[0]
    most = max(values)
    if most == LOG_ZERO:
        return most
    return most + math.log(math.fsum(math.exp(value - most) for value in values))
