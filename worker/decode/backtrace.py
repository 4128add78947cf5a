"""Records a search's emissions and back-pointers step by step, and reads the hypotheses back at the end."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spool.domain.recognition import Hypothesis

Written = mx.array | NDArray[Any]
"""An array of a step, on the device or already on the host."""


@dataclass(frozen=True, slots=True)
class Emission:
    """One step of [B, K] hypotheses.

    labels: int32, the label emitted, -1 where none was. frames: int32, the encoder frame of emission.
    durations: int32, in frames. log_probs: float32, of the label among labels and blank. parents: int32,
    the slot that each slot continues; None when every slot continues itself.
    """

    labels: Written
    frames: Written
    durations: Written
    log_probs: Written
    parents: Written | None = None


@dataclass(frozen=True, slots=True)
class Path:
    """One slot's emissions in order, all of one length: tokens, frames, durations, log-probabilities."""

    tokens: tuple[int, ...]
    times: tuple[int, ...]
    durations: tuple[int, ...]
    log_probs: tuple[float, ...]

    def with_score(self, score: float) -> Hypothesis:
        """The hypothesis of this path; a token's confidence is its probability among labels and blank."""
        confidences = tuple(float(p) for p in np.exp(np.minimum(np.array(self.log_probs, np.float32), 0)))
        return Hypothesis(self.tokens, score, self.times, self.durations, confidences)


@dataclass(frozen=True, slots=True)
class _Steps:
    """Every step's emission on the host, [S, B, K] each."""

    labels: np.ndarray
    frames: np.ndarray
    durations: np.ndarray
    log_probs: np.ndarray
    parents: np.ndarray | None


def on_device(arrays: Iterable[Written | None]) -> list[mx.array]:
    """The arrays that are on the device."""
    return [array for array in arrays if isinstance(array, mx.array)]


def stack_steps(arrays: Sequence[Written]) -> NDArray[Any]:
    """Arrays of one shape as one array on the host, [len(arrays), ...], evaluated together."""
    mx.eval(on_device(arrays))
    return np.stack([np.asarray(array) for array in arrays])


def follow_nodes(ends: NDArray[np.int32], previous: NDArray[np.int32]) -> NDArray[np.int32]:
    """The nodes from the root to each of `ends` [B, K], by the predecessors `previous` [B, T, K] (-1: none):
    int32 [B, K, longest], padded with -1 in front."""
    flat = previous.reshape(len(previous), -1)
    rows = np.arange(len(ends))[:, None]
    current, chain = ends, []
    while (current >= 0).any():
        chain.append(current)
        current = np.where(current >= 0, flat[rows, np.maximum(current, 0)], -1)
    if not chain:
        return np.zeros((*ends.shape, 0), np.int32)
    return np.stack(chain[::-1], axis=-1)


class Backtrace:
    """The emissions of every step so far, on the device until `paths` is asked for."""

    def __init__(self, batch: int, slots: int) -> None:
        self._shape = (batch, slots)
        self._steps: list[Emission] = []

    def append(self, step: Emission) -> None:
        self._steps.append(step)

    def latest(self, steps: int) -> list[mx.array]:
        """The arrays of the last `steps` steps, to be evaluated together with what depends on them."""
        return on_device(
            array
            for step in self._steps[-steps:]
            for array in (step.labels, step.frames, step.durations, step.log_probs, step.parents)
        )

    def trace_origins(self) -> list[tuple[list[Path], list[int]]]:
        """For each utterance, the path of each slot and the slot it descends from before the first step."""
        slot = np.broadcast_to(np.arange(self._shape[1]), self._shape)
        for step in reversed(self._steps):
            if step.parents is not None:
                parents = np.array(step.parents).reshape(self._shape)
                slot = np.take_along_axis(np.maximum(parents, 0), slot, axis=1)
        return list(zip(self.paths(), slot.tolist(), strict=True))

    def paths(self) -> list[list[Path]]:
        """The path of each slot of each utterance, [B][K]; undefined for slots that are dead at the end."""
        if not self._steps:
            return [[Path((), (), (), ())] * self._shape[1] for _ in range(self._shape[0])]
        labels, frames, durations, log_probs = self._walk_back(self._read())
        utterances = []
        for utterance in range(self._shape[0]):
            row = []
            for slot in range(self._shape[1]):
                kept = np.flatnonzero(labels[:, utterance, slot] >= 0)
                row.append(
                    Path(
                        tokens=tuple(labels[kept, utterance, slot].tolist()),
                        times=tuple(frames[kept, utterance, slot].tolist()),
                        durations=tuple(durations[kept, utterance, slot].tolist()),
                        log_probs=tuple(log_probs[kept, utterance, slot].tolist()),
                    )
                )
            utterances.append(row)
        return utterances

    def _read(self) -> _Steps:
        def whole(arrays: list[Written]) -> np.ndarray:
            return stack_steps(arrays).reshape(-1, *self._shape)

        parents = [step.parents for step in self._steps if step.parents is not None]
        return _Steps(
            labels=whole([step.labels for step in self._steps]),
            frames=whole([step.frames for step in self._steps]),
            durations=whole([step.durations for step in self._steps]),
            log_probs=whole([step.log_probs for step in self._steps]),
            parents=whole(parents) if parents else None,
        )

    def _walk_back(self, steps: _Steps) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Every step's emission seen from the slots alive at the end: four [S, B, K] arrays."""
        parents = steps.parents
        if parents is None:
            return steps.labels, steps.frames, steps.durations, steps.log_probs
        slot = np.broadcast_to(np.arange(self._shape[1]), self._shape)
        routes = np.empty_like(parents)
        for step in range(len(parents) - 1, -1, -1):
            routes[step] = slot
            slot = np.take_along_axis(np.maximum(parents[step], 0), slot, axis=1)
        chosen = [
            np.take_along_axis(field, routes, axis=2)
            for field in (steps.labels, steps.frames, steps.durations, steps.log_probs)
        ]
        return chosen[0], chosen[1], chosen[2], chosen[3]
