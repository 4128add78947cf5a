"""Records a beam's steps, from which lattices are built.

In addition to the backtrace's emissions, a lattice needs every score before and after recombination. Arrays
stay on the device until `records` is called; a step costs a few numbers per slot.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.decode.backtrace import Emission, Written, on_device, stack_steps
from worker.decode.lattice.prefix_graph import Record
from worker.decode.lattice.word_graph import PrunedGraph

Number = TypeVar("Number", np.int32, np.float32)


@dataclass(frozen=True, slots=True)
class _Step:
    """[B, K] arrays, as `Record` has them."""

    emission: Emission
    gained: Written
    scores: Written
    fused: Written | None
    marks: Written | None


class LatticeRecorder:
    """One search's steps, or by utterance the `graphs` of a search that makes its lattices itself."""

    def __init__(self, prunes: Sequence[float | None] = ()) -> None:
        """prunes: the pruning beam of each utterance's lattice; None: no lattice is asked for."""
        self.prunes = prunes
        self.graphs: dict[int, PrunedGraph] = {}
        self._records: list[Record] = []
        self._steps: list[_Step] = []
        self._ends: mx.array | None = None
        self._closing: mx.array | None = None
        self._lengths: NDArray[np.int32] = np.zeros(0, np.int32)
        self._sums = True

    def step(
        self,
        emission: Emission,
        gained: Written,
        scores: Written,
        fused: Written | None = None,
        marks: Written | None = None,
    ) -> None:
        """Record one step: scores before and after recombination, fusion's gains, and what else distinguishes
        hypotheses. Arrays are [B, K]; the emission has parents."""
        self._steps.append(_Step(emission, gained, scores, fused, marks))

    def take(self, records: list[Record]) -> None:
        """Set the records of a search that makes them all at once."""
        self._records = records

    def latest(self, steps: int) -> list[mx.array]:
        """The arrays of the last `steps` steps, to be evaluated with what depends on them."""
        return on_device(
            array
            for step in self._steps[-steps:]
            for array in (step.gained, step.scores, step.fused, step.marks)
        )

    def end(
        self, scores: mx.array, lengths: NDArray[np.int32], closing: mx.array | None, *, sums: bool
    ) -> None:
        """Set the final scores [B, K], the utterances' frames [B], fusion's gains for the end [B, K], and
        whether recombination adds probabilities."""
        self._ends, self._lengths, self._closing, self._sums = scores, lengths, closing, sums

    def records(self) -> list[Record]:
        """The record of each utterance; none if nothing was searched."""
        if self._ends is None:
            return self._records
        ends = np.array(self._ends)
        closing = None if self._closing is None else np.array(self._closing)
        shape = ends.shape
        labels = self._stack(shape, np.int32, lambda step: step.emission.labels)
        frames = self._stack(shape, np.int32, lambda step: step.emission.frames)
        durations = self._stack(shape, np.int32, lambda step: step.emission.durations)
        parents = self._stack(shape, np.int32, lambda step: step.emission.parents)
        gained = self._stack(shape, np.float32, lambda step: step.gained)
        scores = self._stack(shape, np.float32, lambda step: step.scores)
        fused = self._stack(shape, np.float32, lambda step: step.fused)
        marks = self._stack(shape, np.int32, lambda step: step.marks)
        marked = any(step.marks is not None for step in self._steps)
        return [
            Record(
                labels=labels[:, row],
                frames=frames[:, row],
                durations=durations[:, row],
                parents=parents[:, row],
                gained=gained[:, row],
                scores=scores[:, row],
                ends=ends[row],
                length=int(self._lengths[row]),
                sums=self._sums,
                fused=None if closing is None else fused[:, row],
                closing=None if closing is None else closing[row],
                marks=marks[:, row] if marked else None,
            )
            for row in range(len(ends))
        ]

    def _stack(
        self, shape: tuple[int, ...], dtype: type[Number], of: Callable[[_Step], Written | None]
    ) -> NDArray[Number]:
        given = [array for step in self._steps if (array := of(step)) is not None]
        return stack_steps(given).astype(dtype) if given else np.zeros((0, *shape), dtype)
