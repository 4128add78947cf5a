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

from kernels.search.recombine import Field
from spool.domain.recognition import Hypothesis
from worker.decode.backtrace import Path
from worker.decode.live.base import (
    EMPTY,
    before,
    behind,
    common_tokens,
    end_frame,
    extend_paths,
    join_rows,
    pad_frames,
    take_rows,
)
from worker.decode.transducer.beam import BeamSearch, BeamState, grow_tokens, rank_hypotheses, with_fields
from worker.models.heads.transducer import Transducer


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
        ranked = self._rank_slots()
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
        return [hypothesis for hypothesis, _ in self._rank_slots()]

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
            slots=with_fields(beam.slots, {Field.COUNT: counts}),
            tokens=mx.concatenate([beam.tokens[:, :, tokens:], room], axis=-1),
            common=mx.maximum(beam.common - tokens, 0),
        )
        self.search = self.search._replace(beam=moved)

    def next_frame(self) -> int:
        """The first frame that the best hypothesis has not read, counted from `frame`."""
        ranked = self._rank_slots()
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

    def _rank_slots(self) -> list[tuple[Hypothesis, int]]:
        if not self.is_finite:
            return []
        scores = self.search.scores(fixed=self.fixed)[0]
        return rank_hypotheses(self.paths, scores, self._next_frames(), self.forgotten)


class LiveBeam:
    """As `LiveSearch`, over a transducer."""

    def __init__(self, transducer: Transducer, beam: int, max_symbols: int, *, fixed: bool = False) -> None:
        self._transducer, self._beam, self._max_symbols, self._fixed = transducer, beam, max_symbols, fixed

    def open(self) -> LiveBeamState:
        start = self._search(mx.zeros((1, 1, 1)), np.array([1], np.int32), [False]).start()
        frames = mx.zeros((0, start.output.shape[-1]), start.output.dtype)
        return LiveBeamState(start, frames, paths=[EMPTY] * self._beam, fixed=self._fixed)

    def _search(self, projected: mx.array, lengths: NDArray[np.int32], last: Sequence[bool]) -> BeamSearch:
        return BeamSearch(
            self._transducer,
            projected,
            lengths,
            self._beam,
            self._max_symbols,
            fusion=None,
            recorder=None,
            fixed=self._fixed,
            goes_on=~np.array(last, bool),
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
        table, lengths = pad_frames([state.frames for state in taken])
        search = self._search(table, lengths, [last[row] for row in rows])
        after = search.advance(_join_states([state.search for state in taken]))
        traced = search.backtrace.trace_origins()
        for row, (state, (paths, origins)) in enumerate(zip(taken, traced, strict=True)):
            state.paths = extend_paths(state.paths, paths, origins, state.frame)
            _keep_unread(state, _row(after, row, self._beam))

    def restart(self, state: LiveBeamState) -> None:
        at, spoken = state.next_frame(), max(state.spoken, end_frame(state.path))
        fresh = self.open()
        unread = min(at, len(state.frames))
        slots = fresh.search.beam.slots
        waits = with_fields(slots, {Field.FRAME: slots[Field.FRAME, :] + (at - unread)})
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
    state.search = search._replace(beam=search.beam._replace(slots=with_fields(slots, {Field.FRAME: moved})))
    state.frames, state.frame = mx.contiguous(state.frames[read:]), state.frame + read
    mx.eval(state.search, state.frames)


def _join_states(states: Sequence[BeamState]) -> BeamState:
    """The states of several streams as one batch."""
    if len(states) == 1:
        return states[0]
    room = max(state.beam.tokens.shape[-1] for state in states)
    grown = [state._replace(beam=grow_tokens(state.beam, room)) for state in states]
    joined = join_rows(grown)
    slots = mx.concatenate([state.beam.slots for state in states], axis=1)
    return joined._replace(beam=joined.beam._replace(slots=slots))


def _row(state: BeamState, row: int, slots: int) -> BeamState:
    """One stream's part of a batch."""
    at, rows = slice(row, row + 1), slice(row * slots, (row + 1) * slots)
    beam = take_rows(state.beam, at)._replace(slots=state.beam.slots[:, at])
    return BeamState(beam, state.output[rows], take_rows(state.network, rows), ())
