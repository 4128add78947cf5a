"""A streaming CTC beam, equal to the offline beam, which goes frame by frame anyway.

A prefix is scored by its best alignment (`kernels.search.ctc_beam` documents the semantics).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np

from kernels.search.ctc_beam import CtcBeam, ctc_step, start_ctc
from kernels.search.fixed_point import number_on_grid, on_grid, rebase, totals
from kernels.search.prefix import Prefixes, grow
from spool.domain.recognition import Hypothesis
from worker.decode.backtrace import Backtrace, Emission, Path
from worker.decode.ctc.beam import THRESHOLD, TOKEN_BLOCK
from worker.decode.live.base import EMPTY, behind, common_tokens, extend_path
from worker.decode.live.greedy import silent_frames
from worker.models.heads.ctc import CtcHead


@dataclass
class CtcBeamState:
    """As `LiveState`. beam: the state of the search, a batch of one. base: int32 [1], what fixed scores are
    relative to. paths: one per slot."""

    beam: CtcBeam
    base: mx.array
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
        held = self.beam.prefixes
        room = mx.full((*held.tokens.shape[:2], tokens), -1, dtype=mx.int32)
        self.beam = self.beam._replace(
            prefixes=Prefixes(
                mx.concatenate([held.tokens[:, :, tokens:], room], axis=-1),
                mx.maximum(held.lengths - tokens, 0),
                mx.maximum(held.common - tokens, 0),
            )
        )

    def _rank_paths(self) -> list[tuple[Hypothesis, Path]]:
        """Best raw score first, ties broken by tokens and times, as in the offline search."""
        if not self.is_finite:
            return []
        ends = totals(self.beam.scores, self.base) if self.fixed else np.array(self.beam.scores)
        alive = np.flatnonzero(ends[0] > -np.inf).tolist()
        row = [(self.paths[slot].with_score(float(ends[0, slot])), self.paths[slot]) for slot in alive]
        return sorted(row, key=lambda each: (-each[0].score, each[0].tokens, each[0].times))


class LiveCtcBeam:
    """As `LiveSearch`, over a CTC head."""

    def __init__(self, head: CtcHead, beam: int, beta: float = 0.0, *, fixed: bool = False) -> None:
        self._head, self._beam, self._fixed = head, beam, fixed
        self._beta = number_on_grid(beta) if fixed else beta

    def open(self) -> CtcBeamState:
        beam = start_ctc(1, self._beam, TOKEN_BLOCK)
        return CtcBeamState(beam, mx.zeros((1,), mx.int32), [EMPTY] * self._beam, fixed=self._fixed)

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
        lengths = np.array([len(each) for each in log_probs], np.int32)
        longest = int(lengths.max())
        table = mx.stack([mx.pad(each, [(0, longest - len(each)), (0, 0)]) for each in log_probs])
        beam, base, backtrace = self._search_frames(taken, on_grid(table) if self._fixed else table, lengths)
        walked = backtrace.trace_origins()
        for row, (state, each) in enumerate(zip(taken, log_probs, strict=True)):
            at = slice(row, row + 1)
            held = beam.prefixes
            prefixes = Prefixes(held.tokens[at], held.lengths[at], held.common[at])
            state.beam, state.base = CtcBeam(beam.scores[at], beam.last[at], prefixes), base[at]
            paths, origins = walked[row]
            state.paths = [
                extend_path(state.paths[origin], path, state.frame)
                for path, origin in zip(paths, origins, strict=True)
            ]
            numbers = np.array(each)
            state.is_finite = bool(np.isfinite(numbers.max(-1)).all() and not np.isnan(numbers).any())
            state.silence = silent_frames(numbers[:, self._head.blank], state.silence)
            state.frame += len(each)

    def _search_frames(
        self, states: Sequence[CtcBeamState], log_probs: mx.array, lengths: np.ndarray
    ) -> tuple[CtcBeam, mx.array, Backtrace]:
        beam, base = (
            _join_beams([state.beam for state in states]),
            mx.concatenate([each.base for each in states]),
        )
        longest = int(np.array(beam.prefixes.lengths).max()) + log_probs.shape[1] + 1
        beam = beam._replace(prefixes=grow(beam.prefixes, -(-longest // TOKEN_BLOCK) * TOKEN_BLOCK))
        backtrace, known = Backtrace(len(states), self._beam), mx.array(lengths)
        for frame in range(log_probs.shape[1]):
            row = log_probs[:, frame]
            beam, step = ctc_step(beam, row, frame < known, self._beta, THRESHOLD)
            if self._fixed:
                scores, base = rebase(beam.scores, base)
                beam = beam._replace(scores=scores)
            still = mx.zeros(step.labels.shape, mx.int32)
            log_prob = mx.take_along_axis(row, mx.maximum(step.labels, 0), axis=1)
            backtrace.append(Emission(step.labels, still + frame, still, log_prob, step.parents))
        mx.eval(beam, base, backtrace.latest(log_probs.shape[1]))
        return beam, base, backtrace

    def restart(self, state: CtcBeamState) -> None:
        fresh = self.open()
        state.beam, state.base, state.paths = fresh.beam, fresh.base, fresh.paths


def _join_beams(beams: Sequence[CtcBeam]) -> CtcBeam:
    """The beams of several streams as one batch."""
    room = max(beam.prefixes.tokens.shape[-1] for beam in beams)
    prefixes = [grow(beam.prefixes, room) for beam in beams]
    return CtcBeam(
        mx.concatenate([beam.scores for beam in beams]),
        mx.concatenate([beam.last for beam in beams]),
        Prefixes(
            mx.concatenate([each.tokens for each in prefixes]),
            mx.concatenate([each.lengths for each in prefixes]),
            mx.concatenate([each.common for each in prefixes]),
        ),
    )
