"""Streaming greedy search: over a transducer (label-looping), and the best path of a CTC head."""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.search.fixed_point import grid_sum
from spool.domain.recognition import Hypothesis
from worker.decode.backtrace import Path
from worker.decode.ctc.greedy import collapse
from worker.decode.live.base import EMPTY, behind, end_frame, extend_path, join_rows, pad_frames, take_rows
from worker.decode.transducer.greedy import GreedyRow, GreedySearch
from worker.models.heads.ctc import CtcHead
from worker.models.heads.transducer import Transducer

SILENT = 0.8
"""The probability of blank above which a frame is silence, as in WeNet."""


@dataclass
class GreedyState:
    """As `LiveState`. row: the state of the search, whose frames count from `frame`, the first that was not
    searched (a jump may have gone past it). spoken: the frame after the last token."""

    row: GreedyRow
    frame: int = 0
    path: Path = EMPTY
    spoken: int = 0
    is_finite: bool = True
    fixed: bool = False

    @property
    def stable(self) -> int:
        """As `LiveState.stable`: all tokens."""
        return len(self.path.tokens)

    @property
    def silence(self) -> int:
        """As `LiveState.silence`: since the last token."""
        return max(0, self.frame - self.spoken)

    def hypotheses(self) -> list[Hypothesis]:
        """As `LiveState.hypotheses`: one."""
        if not self.is_finite:
            return []
        log_probs = np.array(self.path.log_probs, np.float32)
        score = grid_sum(log_probs) if self.fixed else float(np.sum(log_probs, dtype=np.float32))
        return [self.path.with_score(score)]

    def forget(self, tokens: int) -> None:
        self.path = behind(self.path, tokens)


class LiveGreedy:
    """As `LiveSearch`, over a transducer."""

    def __init__(self, transducer: Transducer, max_symbols: int, *, fixed: bool = False) -> None:
        self._transducer, self._max_symbols, self._fixed = transducer, max_symbols, fixed

    def open(self) -> GreedyState:
        return GreedyState(GreedyRow.start(self._transducer, 1), fixed=self._fixed)

    def advance(
        self, states: Sequence[GreedyState], frames: Sequence[mx.array], last: Sequence[bool]
    ) -> None:
        taken = [(state, new, end) for state, new, end in zip(states, frames, last, strict=True) if len(new)]
        if not taken:
            return
        table, lengths = pad_frames([new for _, new, _ in taken])
        start = join_rows([state.row for state, _, _ in taken])
        goes_on = mx.array([not end for _, _, end in taken])
        search = GreedySearch(
            self._transducer, table, lengths, self._max_symbols, None, self._fixed, start, goes_on
        )
        row, paths = search.decode()
        finite = np.array(row.finite)
        for index, (state, new, _) in enumerate(taken):
            state.is_finite = bool(finite[index])
            state.path = extend_path(state.path, paths[index], state.frame) if state.is_finite else EMPTY
            state.spoken = max(state.spoken, end_frame(state.path))
            own = take_rows(row, slice(index, index + 1))
            # Frames count from the end of the chunk.
            state.row = own._replace(frames=own.frames - len(new), last=own.last - len(new))
            state.frame += len(new)

    def restart(self, state: GreedyState) -> None:
        fresh = GreedyRow.start(self._transducer, 1)
        state.row = state.row._replace(output=fresh.output, state=fresh.state)
        state.path = EMPTY


@dataclass
class CtcState:
    """As `LiveState`. last: the best label of the last frame. peaks: the log-probability of every frame whose
    best label is not blank. silence: frames at the end that are blank with a probability above `SILENT`."""

    last: int = -1
    frame: int = 0
    path: Path = EMPTY
    peaks: tuple[float, ...] = ()
    silence: int = 0
    is_finite: bool = True
    fixed: bool = False

    @property
    def stable(self) -> int:
        """As `LiveState.stable`: all tokens."""
        return len(self.path.tokens)

    def hypotheses(self) -> list[Hypothesis]:
        """As `LiveState.hypotheses`: one."""
        if not self.is_finite:
            return []
        peaks = np.array(self.peaks, np.float32)
        return [self.path.with_score(grid_sum(peaks) if self.fixed else float(peaks.sum(dtype=np.float32)))]

    def forget(self, tokens: int) -> None:
        self.path, self.peaks = behind(self.path, tokens), ()


def silent_frames(blank: NDArray[np.float32], before: int) -> int:
    """The number of silent frames at the end, by blank's log-probabilities [n] in a chunk; `before`: the
    number before the chunk."""
    loud = np.flatnonzero(blank <= np.log(SILENT))
    return len(blank) - 1 - int(loud[-1]) if len(loud) else before + len(blank)


class LiveCtcGreedy:
    """As `LiveSearch`, over a CTC head."""

    def __init__(self, head: CtcHead, *, fixed: bool = False) -> None:
        self._head, self._fixed = head, fixed

    def open(self) -> CtcState:
        return CtcState(fixed=self._fixed)

    def advance(self, states: Sequence[CtcState], frames: Sequence[mx.array], last: Sequence[bool]) -> None:  # noqa: ARG002
        for state, new in zip(states, frames, strict=True):
            if not len(new) or not state.is_finite:
                continue
            labels, peaks, blank = self._head.best_labels(new)
            if not np.isfinite(peaks).all():
                state.is_finite, state.path = False, EMPTY
                continue
            more = collapse(labels, peaks, self._head.blank, state.last)
            state.path = extend_path(state.path, more, state.frame)
            state.peaks += tuple(peaks[labels != self._head.blank].tolist())
            state.silence = silent_frames(blank, state.silence)
            state.last, state.frame = int(labels[-1]), state.frame + len(labels)

    def restart(self, state: CtcState) -> None:
        state.last, state.path, state.peaks = -1, EMPTY, ()
