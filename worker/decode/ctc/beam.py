"""Beam search over a CTC head, all utterances of a batch at once.

Without fusion, one launch decodes every utterance (`kernels.search.ctc_beam`, which documents the semantics);
with fusion, the search goes frame by frame. Unlike in NeMo's `beam_batch`, an utterance stops at its own
length: padding is not scored.
"""

from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from kernels.search.ctc_beam import CtcBacktrace, CtcBeam, ctc_beam, ctc_step, start_ctc
from kernels.search.fixed_point import ONE, number_on_grid, on_grid, rebase, totals
from kernels.search.prefix import grow
from spool.domain.recognition import Hypothesis
from worker.decode.backtrace import Backtrace, Emission, Path, follow_nodes
from worker.decode.fusion.fusion import Fusion, FusionState
from worker.decode.lattice.prefix_graph import Record
from worker.decode.recorder import LatticeRecorder

CHECK_EVERY = 8  # frames between two evaluations
TOKEN_BLOCK = 64  # tokens by which a beam's capacity grows
THRESHOLD = 20.0  # natural logarithm; hypotheses this far behind the best are pruned


class CtcState(NamedTuple):
    """The state between two frames. fused: the fusion's states, [B, K] each. base: int32 [B], what fixed
    scores are relative to."""

    beam: CtcBeam
    base: mx.array
    fused: FusionState = ()

    @classmethod
    def start(cls, batch: int, beam: int) -> "CtcState":
        """The state before the first frame, without fusion."""
        return cls(start_ctc(batch, beam, TOKEN_BLOCK), mx.zeros((batch,), mx.int32))

    def scores(self, closing: mx.array | None = None, *, fixed: bool) -> np.ndarray:
        """The scores of all slots, [B, K], with what fusion adds at the end; -inf in dead ones."""
        scores = self.beam.scores
        if closing is not None:
            scores = scores + (on_grid(closing) if fixed else closing)
        return totals(scores, self.base) if fixed else np.array(scores)


class CtcFrames:
    """A search frame by frame: `log_probs` [B, T, V + 1], `lengths` [B] frames, 0 allowed. A stream goes on
    with the state that its last chunk left."""

    def __init__(
        self,
        log_probs: mx.array,
        lengths: np.ndarray,
        beam: int,
        beta: float,
        fusion: Fusion | None = None,
        recorder: LatticeRecorder | None = None,
        *,
        fixed: bool,
    ) -> None:
        log_probs = log_probs.astype(mx.float32)
        self._log_probs = on_grid(log_probs) if fixed else log_probs
        self._fixed = fixed
        self._beta = number_on_grid(beta) if fixed else beta
        self._batch, self._beam, self._frames = len(log_probs), beam, log_probs.shape[1]
        self._steps = min(self._frames, int(lengths.max(initial=0)))
        self._lengths = mx.array(lengths.astype(np.int32))
        self._fusion, self._recorder = fusion, recorder
        self.backtrace = Backtrace(self._batch, beam)

    def advance(self, state: CtcState) -> CtcState:
        """The state after the last frame."""
        for first in range(0, self._steps, CHECK_EVERY):
            block = range(first, min(first + CHECK_EVERY, self._steps))
            prefixes = state.beam.prefixes
            longest = int(np.array(prefixes.lengths).max())
            room = -(-(longest + len(block) + 1) // TOKEN_BLOCK) * TOKEN_BLOCK
            state = state._replace(beam=state.beam._replace(prefixes=grow(prefixes, room)))
            for frame in block:
                state = self._step(state, frame)
            kept = self._recorder.latest(len(block)) if self._recorder else []
            mx.eval(state, self.backtrace.latest(len(block)), kept)
        return state

    def run(self) -> list[list[Hypothesis]]:
        """Hypotheses of each utterance, best first; none for one with a non-finite frame."""
        state, closing = CtcState.start(self._batch, self._beam), None
        if self._fusion is not None:
            state = state._replace(fused=self._fusion.start(self._beam))
        state = self.advance(state)
        if self._fusion is not None:
            closing = self._fusion.ends(state.fused, sentence_end=True).reshape(state.beam.scores.shape)
        if self._recorder is not None and closing is not None:
            ends = state.beam.scores + (on_grid(closing) if self._fixed else closing)
            ends = ends + state.base.astype(mx.float32)[:, None] / ONE
            self._recorder.end(ends, np.array(self._lengths), closing, sums=False)
        inside = mx.arange(self._frames) < self._lengths[:, None]
        finite = ~mx.any(inside & ~_is_finite(self._log_probs), axis=1)
        scores = state.scores(closing, fixed=self._fixed)
        return _rank_all(self.backtrace.paths(), scores, np.array(finite))

    def _step(self, state: CtcState, frame: int) -> CtcState:
        """The best K continuations of each utterance by this frame's labels; ended utterances stay."""
        log_probs, fused, base = self._log_probs[:, frame], state.fused, state.base
        bonus = None
        if self._fusion is not None:
            gains = self._fusion.gains(fused)
            bonus = on_grid(gains) if self._fixed else gains
        beam, step = ctc_step(
            state.beam, log_probs, frame < self._lengths, self._beta, THRESHOLD, bonus=bonus
        )
        shape = step.labels.shape
        log_prob = mx.take_along_axis(log_probs, mx.maximum(step.labels, 0), axis=1)
        frames, durations = mx.full(shape, frame, dtype=mx.int32), mx.zeros(shape, mx.int32)
        emission = Emission(step.labels, frames, durations, log_prob, step.parents)
        self.backtrace.append(emission)
        if self._recorder is not None and bonus is not None:
            rows = (mx.arange(self._batch)[:, None] * self._beam + step.parents).reshape(-1)
            shift = base.astype(mx.float32)[:, None] / ONE
            gained_by_fusion = _label_gains(bonus, rows, step.labels)
            self._recorder.step(
                emission, step.gained + shift, beam.scores + shift, gained_by_fusion, beam.last
            )
        if self._fixed:
            scores, base = rebase(beam.scores, base)
            beam = beam._replace(scores=scores)
        if self._fusion is not None:
            fused = self._fusion.advance(fused, step.parents, step.labels)
        return CtcState(beam, base, fused)


def _search_without_fusion(
    log_probs: mx.array,
    lengths: np.ndarray,
    beam: int,
    beta: float,
    recorder: LatticeRecorder | None,
    fixed: bool,
) -> list[list[Hypothesis]]:
    backtrace = ctc_beam(log_probs, mx.array(lengths.astype(np.int32)), beam, beta, THRESHOLD, fixed=fixed)
    mx.eval(backtrace)
    if recorder is not None:
        _record_steps(recorder, backtrace, lengths)
    ends = totals(backtrace.ends, backtrace.base[:, -1]) if fixed else np.array(backtrace.ends)
    return _rank_all(_paths(backtrace), ends, np.array(backtrace.finite))


def _paths(backtrace: CtcBacktrace) -> list[list[Path]]:
    """The path of each slot [B][K], followed back from its last emission."""
    beam = backtrace.ends.shape[1]
    labels, log_probs = (
        np.array(array).reshape(array.shape[0], -1) for array in (backtrace.labels, backtrace.emissions)
    )

    def path_of(utterance: int, nodes: np.ndarray) -> Path:
        return Path(
            tokens=tuple(labels[utterance, nodes].tolist()),
            times=tuple((nodes // beam).tolist()),
            durations=(0,) * len(nodes),
            log_probs=tuple(log_probs[utterance, nodes].tolist()),
        )

    chains = follow_nodes(np.array(backtrace.end_nodes), np.array(backtrace.nodes))
    return [
        [path_of(utterance, nodes[nodes >= 0]) for nodes in slots] for utterance, slots in enumerate(chains)
    ]


def _record_steps(recorder: LatticeRecorder, backtrace: CtcBacktrace, lengths: np.ndarray) -> None:
    """Record the launch's steps for the lattice."""
    labels, parents, last = np.array(backtrace.labels), np.array(backtrace.parents), np.array(backtrace.last)
    base = np.array(backtrace.base).astype(np.float32) / ONE
    gained = np.array(backtrace.gained) + base[..., None]
    scores = np.array(backtrace.scores) + base[..., None]
    ends = np.array(backtrace.ends) + base[:, -1:]
    frames = np.broadcast_to(np.arange(labels.shape[1], dtype=np.int32)[:, None], labels.shape[1:])
    still = np.zeros_like(frames)
    recorder.take(
        [
            Record(
                labels=labels[row],
                frames=frames,
                durations=still,
                parents=parents[row],
                gained=gained[row],
                scores=scores[row],
                ends=ends[row],
                length=int(length),
                sums=False,
                marks=last[row],
            )
            for row, length in enumerate(lengths)
        ]
    )


def _rank_all(paths: list[list[Path]], scores: np.ndarray, finite: np.ndarray) -> list[list[Hypothesis]]:
    return [
        [hypothesis for hypothesis, _ in rank_paths(slots, scores[row])] if finite[row] else []
        for row, slots in enumerate(paths)
    ]


def rank_paths(paths: Sequence[Path], scores: np.ndarray) -> list[tuple[Hypothesis, Path]]:
    """The hypotheses of live slots with their paths, best raw score first, then by tokens and times."""
    alive = np.flatnonzero(scores > -np.inf).tolist()
    scored = [(paths[slot].with_score(float(scores[slot])), paths[slot]) for slot in alive]
    return sorted(scored, key=lambda each: (-each[0].score, each[0].tokens, each[0].times))


def _label_gains(bonus: mx.array, rows: mx.array, labels: mx.array) -> mx.array:
    """The `bonus` [B, K, V] of the labels [B, K] (-1: none) that continue the slots `rows` [B * K]."""
    spoken = mx.take(bonus.reshape(-1), rows * bonus.shape[-1] + mx.maximum(labels, 0).reshape(-1))
    return mx.where(labels >= 0, spoken.reshape(labels.shape), 0.0)


def _is_finite(log_probs: mx.array) -> mx.array:
    """bool [B, T]: no label of the frame is NaN, and at least one is finite."""
    # A sum is NaN where an element is; -inf alone marks an impossible label.
    return mx.isfinite(mx.max(log_probs, axis=-1)) & ~mx.isnan(mx.sum(log_probs, axis=-1))


def ctc_beam_search(
    log_probs: mx.array,
    lengths: np.ndarray,
    blank: int,
    beam: int,
    fusion: Fusion | None = None,
    recorder: LatticeRecorder | None = None,
    beta: float = 0.0,
    *,
    fixed: bool = False,
) -> list[list[Hypothesis]]:
    """Up to `beam` hypotheses of each utterance, best raw score first.

    log_probs: [B, T, V + 1], natural logs, `blank` last; lengths: [B] valid frames; an utterance without
    frames has one empty hypothesis of score 0 (plus fusion's score of an empty sentence). `beta` is added for
    each token. A token's time is the frame of its first label, its duration 0, its confidence the probability
    there. A beam can hold fewer than `beam` hypotheses, and one transcript twice, with and without a final
    blank. An utterance with a non-finite frame has an empty list. `recorder` keeps what a lattice needs.
    `fixed` adds and compares scores in fixed point (`kernels.search.fixed_point`).
    """
    if blank != log_probs.shape[2] - 1:
        raise ValueError(f"blank is {blank}, but it must be the last of {log_probs.shape[2]} labels")
    if log_probs.shape[1] == 0:
        log_probs = mx.zeros((log_probs.shape[0], 1, log_probs.shape[2]))
    if fusion is None:
        return _search_without_fusion(log_probs, lengths, beam, beta, recorder, fixed)
    return CtcFrames(log_probs, lengths, beam, beta, fusion, recorder, fixed=fixed).run()
