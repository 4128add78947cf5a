"""A streaming transducer beam, equal to the offline beam.

They are equal because a step runs only while every live hypothesis has its next frame. As soon as one reaches
the end of the received frames, the whole beam waits, and frames that slower hypotheses have not read yet are
kept. So nothing is merged or ranked differently.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.runtime.device import compiles_for_cpu
from kernels.search.expand import FINISHED, FORCED, RUNS, Expansion
from kernels.search.recombine import Beam, Field
from spool.domain.recognition import Hypothesis
from worker.decode.backtrace import Path
from worker.decode.live.base import EMPTY, before, behind, common_tokens, end_frame, extend_path
from worker.decode.transducer.beam import (
    CHECK_EVERY,
    TOKEN_BLOCK,
    BeamSearch,
    BeamState,
    grow_tokens,
    rank_hypotheses,
)
from worker.models.heads.transducer import LstmState, Transducer

ENDLESS = 1 << 30
"""The length in encoder frames of a stream whose end is unknown."""


@dataclass
class LiveBeamState:
    """As `LiveState`. search: the state of the search, a batch of one, whose frames count from `frame`, the
    first that some hypothesis has not read. frames: [n, J] from there on, projected. paths: one per slot.
    spoken: the frame after the last final token."""

    search: BeamState
    frames: mx.array
    frame: int = 0
    paths: list[Path] = field(default_factory=list)
    forgotten: int = 0
    spoken: int = 0
    fixed: bool = False

    @property
    def path(self) -> Path:
        ranked = self._ranked()
        return self.paths[ranked[0][1]] if ranked else EMPTY

    @property
    def stable(self) -> int:
        return common_tokens([self.paths[slot] for slot in self._alive()])

    @property
    def silence(self) -> int:
        """As `LiveState.silence`: since the last token of the best hypothesis."""
        return max(0, self.frame + len(self.frames) - max(self.spoken, end_frame(self.path)))

    @property
    def is_finite(self) -> bool:
        return bool(np.array(self.search.beam.finite)[0])

    def hypotheses(self) -> list[Hypothesis]:
        return [hypothesis for hypothesis, _ in self._ranked()]

    def forget(self, tokens: int) -> None:
        if tokens == 0:
            return
        self.spoken = max(self.spoken, end_frame(before(self.path, tokens)))
        self.paths = [behind(path, tokens) for path in self.paths]
        self.forgotten += tokens
        beam = self.search.beam
        counts = mx.maximum(beam.slots[Field.COUNT, :] - tokens, 0)
        room = mx.full((*beam.tokens.shape[:2], tokens), -1, dtype=mx.int32)
        moved = beam._replace(
            slots=_with_fields(beam.slots, {Field.COUNT: counts}),
            tokens=mx.concatenate([beam.tokens[:, :, tokens:], room], axis=-1),
            common=mx.maximum(beam.common - tokens, 0),
        )
        self.search = self.search._replace(beam=moved)

    def next_frame(self) -> int:
        """The first frame that the best hypothesis has not read, counted from `frame`."""
        ranked = self._ranked()
        if not ranked:
            return 0
        slot = ranked[0][1]
        # A frame that emitted a label counts as read, even if it may emit another.
        has_spoken = np.array(self.search.beam.slots[Field.HELD, :])[0, slot] > 0
        return int(self._next_frames()[slot]) + int(has_spoken)

    def _alive(self) -> list[int]:
        return [int(slot) for slot in np.flatnonzero(np.array(self.search.beam.scores)[0] > -np.inf)]

    def _next_frames(self) -> NDArray[np.int32]:
        frames: NDArray[np.int32] = np.array(self.search.beam.slots[Field.FRAME, :])[0]
        return frames

    def _ranked(self) -> list[tuple[Hypothesis, int]]:
        if not self.is_finite:
            return []
        scores = self.search.scores(fixed=self.fixed)[0]
        return rank_hypotheses(self.paths, scores, self._next_frames(), self.forgotten)


class LiveBeam:
    """As `LiveSearch`, over a transducer."""

    def __init__(self, transducer: Transducer, beam: int, max_symbols: int, *, fixed: bool = False) -> None:
        self._transducer, self._beam, self._max_symbols, self._fixed = transducer, beam, max_symbols, fixed

    def open(self) -> LiveBeamState:
        start = self._chunk_search(mx.zeros((1, 1, 1)), np.array([1], np.int32), [False]).start()
        frames = mx.zeros((0, start.output.shape[-1]), start.output.dtype)
        return LiveBeamState(start, frames, paths=[EMPTY] * self._beam, fixed=self._fixed)

    def _chunk_search(
        self, projected: mx.array, lengths: NDArray[np.int32], last: Sequence[bool]
    ) -> "_ChunkBeam":
        return _ChunkBeam(
            self._transducer, projected, lengths, last, self._beam, self._max_symbols, fixed=self._fixed
        )

    def advance(
        self, states: Sequence[LiveBeamState], frames: Sequence[mx.array], last: Sequence[bool]
    ) -> None:
        for state, new in zip(states, frames, strict=True):
            if len(new):
                fresh = self._transducer.project_encoder(new)
                state.frames = mx.concatenate([state.frames, fresh]) if len(state.frames) else fresh
        rows = [row for row, state in enumerate(states) if len(state.frames)]
        if not rows:
            return
        taken = [states[row] for row in rows]
        lengths = np.array([len(state.frames) for state in taken], np.int32)
        longest = int(lengths.max())
        table = mx.stack([mx.pad(each.frames, [(0, longest - len(each.frames)), (0, 0)]) for each in taken])
        search = self._chunk_search(table, lengths, [last[row] for row in rows])
        after = search.go_on(_join_states([state.search for state in taken]))
        walked = search.trace_origins()
        for row, state in enumerate(taken):
            paths, origins = walked[row]
            state.paths = [
                extend_path(state.paths[origin], path, state.frame)
                for path, origin in zip(paths, origins, strict=True)
            ]
            _keep_unread(state, _row(after, row, self._beam))

    def restart(self, state: LiveBeamState) -> None:
        at, spoken = state.next_frame(), max(state.spoken, end_frame(state.path))
        fresh = self.open()
        unread = min(at, len(state.frames))
        slots = fresh.search.beam.slots
        waits = _with_fields(slots, {Field.FRAME: slots[Field.FRAME, :] + (at - unread)})
        state.search = fresh.search._replace(beam=fresh.search.beam._replace(slots=waits))
        state.frames, state.frame = state.frames[unread:], state.frame + unread
        state.paths, state.forgotten, state.spoken = fresh.paths, 0, spoken


def _keep_unread(state: LiveBeamState, search: BeamState) -> None:
    """Store the search's state, and only those frames that some hypothesis has not read."""
    ends = np.array(search.beam.slots[Field.FRAME, :])[0]
    alive = np.array(search.beam.scores)[0] > -np.inf
    read = min(int(ends[alive].min()), len(state.frames)) if alive.any() else len(state.frames)
    slots = search.beam.slots
    moved = mx.maximum(slots[Field.FRAME, :] - read, 0)
    state.search = search._replace(beam=search.beam._replace(slots=_with_fields(slots, {Field.FRAME: moved})))
    state.frames, state.frame = mx.contiguous(state.frames[read:]), state.frame + read
    mx.eval(state.search, state.frames)


class _ChunkBeam(BeamSearch):
    """The steps of one chunk of each stream: encoder [B, T, J], projected, `lengths` [B] frames of it."""

    def __init__(
        self,
        transducer: Transducer,
        projected: mx.array,
        lengths: NDArray[np.int32],
        last: Sequence[bool],
        beam: int,
        max_symbols: int,
        *,
        fixed: bool,
    ) -> None:
        ends = np.array(last, bool)
        endless = np.where(ends, lengths, ENDLESS).astype(np.int32)
        super().__init__(transducer, projected, endless, beam, max_symbols, None, None, fixed)
        self._known, self._ends = mx.array(lengths), mx.array(ends)
        self._rows = projected.shape[1]

    def go_on(self, state: BeamState) -> BeamState:
        """Run steps until no beam can make another."""
        every = 1 if compiles_for_cpu() else CHECK_EVERY
        slots = state.beam.slots
        over = slots[Field.FRAME, :] >= self._limits.lengths[:, None]
        forced = slots[Field.HELD, :] >= self._limits.bounds[1]
        status = mx.where(over, FINISHED, mx.where(forced, FORCED, RUNS))
        entered = _with_fields(slots, {Field.STATUS: status, Field.ROW: self._row_of(slots[Field.FRAME, :])})
        state = state._replace(beam=state.beam._replace(slots=entered))
        while not np.array(self._waits(state.beam)).all():
            longest = int(np.array(state.beam.slots[Field.COUNT, :]).max())
            state = state._replace(beam=grow_tokens(state.beam, longest + every + 1))
            for _ in range(every):
                state = self._step(state)
            mx.eval(state, self._kept())
        return state

    def trace_origins(self) -> list[tuple[list[Path], list[int]]]:
        """For each stream, the path of each slot and the slot it descends from at the chunk's start."""
        return self._backtrace.trace_origins()

    def _recombined(self, grown: Expansion, before: Beam) -> Beam:
        beam, waits = super()._recombined(grown, before), self._waits(before)
        slots = before.slots
        own = mx.broadcast_to(mx.arange(self._beam, dtype=mx.int32), before.scores.shape)
        none = mx.zeros(own.shape, mx.int32)
        still = _with_fields(
            slots,
            {
                Field.LABEL: none - 1,
                Field.DURATION: none,
                Field.PARENT: own,
                Field.ORIGIN: own,
            },
        )
        slots = mx.where(waits[None, :, None], still, beam.slots)
        return Beam(
            scores=mx.where(waits[:, None], before.scores, beam.scores),
            slots=_with_fields(slots, {Field.ROW: self._row_of(slots[Field.FRAME, :])}),
            tokens=mx.where(waits[:, None, None], before.tokens, beam.tokens),
            common=mx.where(waits[:, None, None], before.common, beam.common),
            finite=mx.where(waits, before.finite, beam.finite),
            base=mx.where(waits, before.base, beam.base),
        )

    def _waits(self, beam: Beam) -> mx.array:
        """bool [B]: no step can be made, since a hypothesis (at a stream's end: every hypothesis) has no next
        frame."""
        alive = beam.scores > -mx.inf
        reached = beam.slots[Field.FRAME, :] >= self._known[:, None]
        some, every = mx.any(alive & reached, axis=1), mx.all(~alive | reached, axis=1)
        return mx.where(self._ends, every, some) | ~mx.any(alive, axis=1)

    def _row_of(self, frames: mx.array) -> mx.array:
        first = (mx.arange(self._batch) * self._rows)[:, None]
        return first + mx.clip(frames, 0, self._rows - 1)


def _with_fields(slots: mx.array, fields: dict[Field, mx.array]) -> mx.array:
    """`slots` with some of its fields replaced."""
    rows = [fields.get(each, slots[each]) for each in Field]
    return mx.stack(rows).astype(mx.int32)


def _join_states(states: Sequence[BeamState]) -> BeamState:
    """The states of several streams as one batch."""
    if len(states) == 1:
        return states[0]
    room = max(state.beam.tokens.shape[-1] for state in states)
    room = -(-room // TOKEN_BLOCK) * TOKEN_BLOCK
    beams = [grow_tokens(state.beam, room) for state in states]
    beam = Beam(
        scores=mx.concatenate([each.scores for each in beams]),
        slots=mx.concatenate([each.slots for each in beams], axis=1),
        tokens=mx.concatenate([each.tokens for each in beams]),
        common=mx.concatenate([each.common for each in beams]),
        finite=mx.concatenate([each.finite for each in beams]),
        base=mx.concatenate([each.base for each in beams]),
    )
    network = LstmState(
        mx.concatenate([state.network.hidden for state in states]),
        mx.concatenate([state.network.cell for state in states]),
    )
    output = mx.concatenate([state.output for state in states])
    return BeamState(beam, output, network, ())


def _row(state: BeamState, row: int, slots: int) -> BeamState:
    """One stream's part of a batch."""
    at, rows = slice(row, row + 1), slice(row * slots, (row + 1) * slots)
    each = state.beam
    beam = Beam(
        *(
            each.scores[at],
            each.slots[:, at],
            each.tokens[at],
            each.common[at],
            each.finite[at],
            each.base[at],
        )
    )
    network = LstmState(state.network.hidden[rows], state.network.cell[rows])
    return BeamState(beam, state.output[rows], network, ())
