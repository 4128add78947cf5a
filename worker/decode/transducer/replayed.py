"""A transducer beam's steps as kernels only, so that a CPU can replay them without Python.

A step is one of `BeamSearch` without fusion, except that a kernel also computes the indices. That removes
most of a step's overhead (`kernels.runtime.replay`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.runtime.replay import Replay, record
from kernels.search.expand import expand
from kernels.search.next_rows import next_rows
from kernels.search.recombine import Beam, Field, Limits, recombine
from worker.models.heads.transducer import LstmState, Transducer

BLOCK = 8  # steps that are reported at once


class _Carried(NamedTuple):
    """What one step passes to the next, followed by the layers' states: a beam, the gains of its expansion,
    the projected output, which slots are joined next, and how many of them run."""

    scores: mx.array
    slots: mx.array
    tokens: mx.array
    common: mx.array
    finite: mx.array
    base: mx.array
    gains: mx.array
    output: mx.array
    joined: mx.array
    running: mx.array


_PLACES = {name: place for place, name in enumerate(_Carried._fields)}
_REPORTED = ("scores", "slots", "gains", "base")


class Steps(NamedTuple):
    """S consecutive steps. scores: float32 [S, B, K], slots: int32 [S, Field, B, K] and base: int32 [S, B] as
    in `Beam`; gains: float32 [S, 3, B, K] as in `Expansion`, relative to `before`, int32 [S, B]."""

    scores: NDArray[np.float32]
    slots: NDArray[np.int32]
    gains: NDArray[np.float32]
    base: NDArray[np.int32]
    before: NDArray[np.int32]


class ReplayState(NamedTuple):
    """The state of a search: a beam, the projected output [B * K, J] and the network's state."""

    beam: Beam
    output: mx.array
    network: LstmState


class ReplayedBeam:
    """One search: `encoder` [B * T, J], projected."""

    def __init__(
        self, transducer: Transducer, encoder: mx.array, durations: mx.array | None, limits: Limits
    ) -> None:
        self._transducer, self._encoder = transducer, encoder
        self._durations, self._limits = durations, limits

    def run(self, start: ReplayState, steps: int, on_steps: Callable[[Steps], None]) -> ReplayState | None:
        """The state after at most `steps` steps (at least 2), fewer once no hypothesis runs. `on_steps` gets
        all of them, up to `BLOCK` at a time. None, without a call of `on_steps`, if a step is more than
        kernels."""
        state = self._initial_state(start)
        kept = [BLOCK if name in _REPORTED else 1 for name in _PLACES] + [1] * (len(state) - len(_PLACES))
        once, twice, replay = record(self._step, state, kept, _PLACES["running"])
        if replay is None:
            return None
        base = np.array(start.beam.base)
        for recorded in (once, twice):
            arrays = (np.array(recorded[_PLACES[name]])[None] for name in _REPORTED)
            base = _report_steps(on_steps, base, *arrays)
        left = steps - 2
        while left > 0 and replay.latest(_PLACES["running"]).any():
            count = replay.run(min(BLOCK, left))
            left -= count
            base = _report_steps(on_steps, base, *(replay.latest(_PLACES[name], count) for name in _REPORTED))
        return self._final_state(replay, len(state))

    def _initial_state(self, start: ReplayState) -> list[mx.array]:
        beam = start.beam
        rows = next_rows(beam.slots, beam.scores)
        gains = mx.zeros((3, *beam.scores.shape))
        carried = _Carried(*beam, gains, start.output, rows.joined, rows.running)
        layers = [each for layer in start.network.layers() for each in layer]
        # Each in its own memory, by which `record` tells them apart.
        return [mx.array(np.array(each, order="C")) for each in (*carried, *layers)]

    def _step(self, state: Sequence[mx.array]) -> list[mx.array]:
        before, states = _Carried(*state[: len(_PLACES)]), state[len(_PLACES) :]
        beam = Beam(before.scores, before.slots, before.tokens, before.common, before.finite, before.base)
        logits = self._transducer.join_rows(self._encoder, before.output, before.joined)
        grown = expand(
            logits.reshape(*beam.scores.shape, -1),
            self._durations,
            beam.scores,
            beam.slots[Field.STATUS, :],
            fixed=self._limits.fixed,
        )
        after = recombine(grown, beam, self._limits)
        rows = next_rows(after.slots, after.scores)
        layers = [LstmState(*states[at : at + 2]) for at in range(0, len(states), 2)]
        output, layers = self._transducer.go_on(rows.steps, before.output, layers)
        return [
            *_Carried(*after, grown.gains, output, rows.joined, rows.running),
            *(each for layer in layers for each in layer),
        ]

    def _final_state(self, replay: Replay, arrays: int) -> ReplayState:
        state = [mx.array(replay.latest(place)[0]) for place in range(arrays)]
        carried, states = _Carried(*state[: len(_PLACES)]), state[len(_PLACES) :]
        layers = [LstmState(*states[at : at + 2]) for at in range(0, len(states), 2)]
        beam = Beam(
            carried.scores, carried.slots, carried.tokens, carried.common, carried.finite, carried.base
        )
        return ReplayState(beam, carried.output, LstmState.of_layers(layers))


def _report_steps(
    on_steps: Callable[[Steps], None],
    base: NDArray[np.int32],
    scores: NDArray[np.float32],
    slots: NDArray[np.int32],
    gains: NDArray[np.float32],
    bases: NDArray[np.int32],
) -> NDArray[np.int32]:
    """Report the steps that follow one with `base`; returns the last base."""
    on_steps(Steps(scores, slots, gains, bases, np.concatenate([base[None], bases[:-1]])))
    last: NDArray[np.int32] = bases[-1]
    return last
