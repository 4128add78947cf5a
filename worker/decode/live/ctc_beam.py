"""A streaming CTC beam, equal to the offline beam, which goes frame by frame anyway.

A prefix is scored by its best alignment (`kernels.search.ctc_beam` documents the semantics).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np

from kernels.search.prefix import Prefixes, grow
from spool.domain.recognition import Hypothesis
from worker.decode.backtrace import Path
from worker.decode.ctc.beam import CtcFrames, CtcState, rank_paths
from worker.decode.live.base import (
    EMPTY,
    behind,
    common_tokens,
    extend_paths,
    join_rows,
    pad_frames,
    take_rows,
)
from worker.decode.live.greedy import silent_frames
from worker.models.heads.ctc import CtcHead


@dataclass
class CtcBeamState:
    """As `LiveState`. search: the state of the search, a batch of one. paths: one per slot."""

    search: CtcState
    paths: list[Path] = field(default_factory=list)
    frame: int = 0
    silence: int = 0
    is_finite: bool = True
    fixed: bool = False

    @property
    def path(self) -> Path:
        ranked = self._rank_paths()
        return ranked[0][1] if ranked else EMPTY

    @property
    def stable(self) -> int:
        return common_tokens([path for _, path in self._rank_paths()])

    def hypotheses(self) -> list[Hypothesis]:
        return [hypothesis for hypothesis, _ in self._rank_paths()]

    def forget(self, tokens: int) -> None:
        if tokens == 0:
            return
        self.paths = [behind(path, tokens) for path in self.paths]
        beam = self.search.beam
        held = beam.prefixes
        room = mx.full((*held.tokens.shape[:2], tokens), -1, dtype=mx.int32)
        prefixes = Prefixes(
            mx.concatenate([held.tokens[:, :, tokens:], room], axis=-1),
            mx.maximum(held.lengths - tokens, 0),
            mx.maximum(held.common - tokens, 0),
        )
        self.search = self.search._replace(beam=beam._replace(prefixes=prefixes))

    def _rank_paths(self) -> list[tuple[Hypothesis, Path]]:
        return rank_paths(self.paths, self.search.scores(fixed=self.fixed)[0]) if self.is_finite else []


class LiveCtcBeam:
    """As `LiveSearch`, over a CTC head."""

    def __init__(self, head: CtcHead, beam: int, beta: float = 0.0, *, fixed: bool = False) -> None:
        self._head, self._beam, self._beta, self._fixed = head, beam, beta, fixed

    def open(self) -> CtcBeamState:
        return CtcBeamState(CtcState.start(1, self._beam), [EMPTY] * self._beam, fixed=self._fixed)

    def advance(
        self,
        states: Sequence[CtcBeamState],
        frames: Sequence[mx.array],
        last: Sequence[bool],  # noqa: ARG002 - a frame is searched as it comes
    ) -> None:
        rows = [row for row, new in enumerate(frames) if len(new) and states[row].is_finite]
        if not rows:
            return
        taken = [states[row] for row in rows]
        # Each stream by itself, since a product's bits may depend on its number of rows.
        log_probs = [self._head.log_probs(frames[row]) for row in rows]
        table, lengths = pad_frames(log_probs)
        search = CtcFrames(table, lengths, self._beam, self._beta, fixed=self._fixed)
        after = search.advance(_join_states([state.search for state in taken]))
        traced = search.backtrace.trace_origins()
        for row, (state, each, (paths, origins)) in enumerate(zip(taken, log_probs, traced, strict=True)):
            state.search = take_rows(after, slice(row, row + 1))
            state.paths = extend_paths(state.paths, paths, origins, state.frame)
            numbers = np.array(each)
            state.is_finite = bool(np.isfinite(numbers.max(-1)).all() and not np.isnan(numbers).any())
            state.silence = silent_frames(numbers[:, self._head.blank], state.silence)
            state.frame += len(each)

    def restart(self, state: CtcBeamState) -> None:
        fresh = self.open()
        state.search, state.paths = fresh.search, fresh.paths


def _join_states(states: Sequence[CtcState]) -> CtcState:
    """The states of several streams as one batch."""
    room = max(state.beam.prefixes.tokens.shape[-1] for state in states)
    return join_rows(
        [
            state._replace(beam=state.beam._replace(prefixes=grow(state.beam.prefixes, room)))
            for state in states
        ]
    )
