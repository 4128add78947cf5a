"""Beam search over a transducer's graph, all utterances and all slots of their beams at once.

The semantics are those of NeMo's `malsd_batch` (modified alignment-length synchronous decoding, after
"Alignment-Length Synchronous Decoding for RNN Transducer", Saon et al., 2020, with a bound on labels per
frame), for RNNT and TDT. The loop is over steps: every utterance ends at its own length, keeps its place in
the batch and does not depend on its neighbours. `kernels.search.expand` and `kernels.search.recombine` do
each step's arithmetic, by kernel or by plain-MLX reference.
"""

from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.runtime.device import compiles_for_cpu
from kernels.search.expand import FINISHED, FORCED, RUNS, expand
from kernels.search.fixed_point import ONE, on_grid, totals
from kernels.search.recombine import Beam, Field, Limits, empty_beam, recombine
from spool.domain.recognition import Hypothesis
from worker.decode.backtrace import Backtrace, Emission, Path
from worker.decode.fusion.fusion import Fusion, FusionState
from worker.decode.recorder import LatticeRecorder
from worker.decode.transducer.replayed import ReplayedBeam, ReplayState, Steps
from worker.decode.transducer.stepping import joint_logits, reorder
from worker.models.heads.transducer import LstmState, Transducer
from worker.models.turns import give_way

CHECK_EVERY = 8  # steps between two checks of whether any hypothesis still runs
TOKEN_BLOCK = 64  # tokens by which a beam's capacity grows
ENDLESS = 1 << 30
"""The length in encoder frames of an utterance whose end is unknown."""
REPLAYED_STEPS = 2 * TOKEN_BLOCK  # steps that are replayed before the capacity grows


class BeamState(NamedTuple):
    """The state between two steps. output: the projected prediction output [B * K, J]. network: the state of
    the prediction network. fused: the fusion's states."""

    beam: Beam
    output: mx.array
    network: LstmState
    fused: FusionState

    def scores(self, *, fixed: bool) -> NDArray[np.floating]:
        """The scores of all slots, [B, K], -inf in dead ones."""
        return totals(self.beam.scores, self.beam.base) if fixed else np.array(self.beam.scores)


class BeamSearch:
    """One search over one batch: `projected` [B, T, J] with T >= 1, as the joint takes encoder frames,
    `lengths` [B] frames, 0 allowed.

    goes_on: bool [B], utterances with more frames to come; None: none. Such an utterance makes steps only
    while every live hypothesis has its next frame, so it is searched as with all its frames at once.
    """

    def __init__(
        self,
        transducer: Transducer,
        projected: mx.array,
        lengths: np.ndarray,
        beam: int,
        max_symbols: int,
        fusion: Fusion | None,
        recorder: LatticeRecorder | None,
        fixed: bool,
        goes_on: NDArray[np.bool_] | None = None,
    ) -> None:
        self._transducer = transducer
        self._fusion = fusion
        self.recorder = recorder
        self._batch, self._frames = projected.shape[:2]
        self._beam = beam
        self._known = mx.array(lengths.astype(np.int32))
        self._is_stream = goes_on is not None
        self._goes_on = mx.array(np.zeros(self._batch, bool) if goes_on is None else goes_on)
        self._limits = Limits(
            lengths=mx.where(self._goes_on, ENDLESS, self._known) if self._is_stream else self._known,
            bounds=mx.array([self._frames, max_symbols], mx.int32),
            blank=transducer.blank,
            timed=transducer.durations is not None,
            fixed=fixed,
        )
        self._encoder = projected.reshape(self._batch * self._frames, -1)
        self._durations = None if transducer.durations is None else mx.array(transducer.durations, mx.int32)
        self.backtrace = Backtrace(self._batch, beam)

    def run(self) -> list[list[Hypothesis]]:
        """Hypotheses of each utterance, best first; none for one whose logits were not finite.

        On a GPU the check of whether a block left anything running lags by one block: the next block is
        already queued when its result is read. A CPU's kernels have finished when they return, so they are
        checked at once.
        """
        synchronous = compiles_for_cpu()
        every = 1 if synchronous else CHECK_EVERY
        state = self.start()
        if synchronous and self._fusion is None:
            state = self._replay(state)
        checked = last = state.beam
        ahead = steps = 0  # steps between the checked and the queued state, and in all
        while (longest := _longest_running(checked)) >= 0:
            state = state._replace(beam=grow_tokens(state.beam, longest + ahead + every + 1))
            for _ in range(every):
                state = self._step(state)
            steps += every
            if steps % CHECK_EVERY == 0:
                mx.async_eval(state, *self._latest_arrays())  # type: ignore[no-untyped-call]
                give_way(state)
            checked, last = (state.beam if synchronous else last), state.beam
            ahead = 0 if synchronous else every
        return self._finish(state)

    def _replay(self, state: BeamState) -> BeamState:
        """The state after the last step, by replaying steps without Python; `state` if that is impossible."""
        replayed = ReplayedBeam(self._transducer, self._encoder, self._durations, self._limits)
        while (longest := _longest_running(state.beam)) >= 0:
            start = ReplayState(
                grow_tokens(state.beam, longest + REPLAYED_STEPS), state.output, state.network
            )
            reached = replayed.run(start, REPLAYED_STEPS - 1, self._note_steps)
            if reached is None:
                break
            state = BeamState(*reached, state.fused)
        return state

    def _note_steps(self, steps: Steps) -> None:
        for scores, slots, gains, base, before in zip(*steps, strict=True):
            emission = Emission(
                slots[Field.LABEL],
                slots[Field.SPOKEN],
                slots[Field.DURATION],
                gains[1],
                slots[Field.PARENT],
            )
            self.backtrace.append(emission)
            if self.recorder is not None:
                gained = gains[0]
                if self._limits.fixed:
                    gained, scores = (
                        each + of.astype(np.float32)[:, None] / np.float32(ONE)
                        for each, of in ((gained, before), (scores, base))
                    )
                self.recorder.step(emission, gained, scores)
        give_way()

    def _latest_arrays(self) -> list[mx.array]:
        kept = self.backtrace.latest(CHECK_EVERY)
        return kept if self.recorder is None else kept + self.recorder.latest(CHECK_EVERY)

    def start(self) -> BeamState:
        """The state with every utterance at its first frame."""
        output, network = self._transducer.start(self._batch * self._beam)
        beam = empty_beam(self._batch, self._beam, TOKEN_BLOCK, self._limits)
        fused = self._fusion.start(self._beam) if self._fusion else ()
        return BeamState(beam, output, network, fused)

    def _step(self, state: BeamState) -> BeamState:
        before = state.beam
        logits = joint_logits(self._transducer, self._encoder, before, state.output)
        grown = expand(
            logits.reshape(self._batch, self._beam, -1),
            self._durations,
            before.scores,
            before.slots[Field.STATUS, :],
            self._fusion.bonus(state.fused) if self._fusion else None,
            fixed=self._limits.fixed,
        )
        beam = recombine(grown, before, self._limits)
        if self._is_stream:
            beam = self._let_wait(before, beam)
        slots = beam.slots
        output, network = reorder(self._transducer, slots, state.output, state.network)
        fused = state.fused
        if self._fusion is not None:
            fused = self._fusion.advance(fused, slots[Field.PARENT, :], slots[Field.LABEL, :])
        emission = Emission(
            slots[Field.LABEL, :],
            slots[Field.SPOKEN, :],
            slots[Field.DURATION, :],
            grown.gains[1, :],
            slots[Field.PARENT, :],
        )
        self.backtrace.append(emission)
        if self.recorder is not None:
            fusion_gains = grown.gains[2, :] if self._fusion else None
            gained, scores = grown.gains[0, :], beam.scores
            if self._limits.fixed:
                gained, scores = _absolute(gained, before.base), _absolute(scores, beam.base)
            self.recorder.step(emission, gained, scores, fusion_gains)
        return BeamState(beam, output, network, fused)

    def advance(self, state: BeamState) -> BeamState:
        """The state once no utterance can make another step, when some of them go on."""
        every = 1 if compiles_for_cpu() else CHECK_EVERY
        slots = state.beam.slots
        over = slots[Field.FRAME, :] >= self._limits.lengths[:, None]
        forced = slots[Field.HELD, :] >= self._limits.bounds[1]
        status = mx.where(over, FINISHED, mx.where(forced, FORCED, RUNS))
        rows = self._rows_of(slots[Field.FRAME, :])
        entered = with_fields(slots, {Field.STATUS: status, Field.ROW: rows})
        state = state._replace(beam=state.beam._replace(slots=entered))
        while not np.array(self._waits(state.beam)).all():
            longest = int(np.array(state.beam.slots[Field.COUNT, :]).max())
            state = state._replace(beam=grow_tokens(state.beam, longest + every + 1))
            for _ in range(every):
                state = self._step(state)
            mx.eval(state, self._latest_arrays())
        return state

    def _let_wait(self, before: Beam, beam: Beam) -> Beam:
        """The beam after a step, in which utterances that wait stay as they were before."""
        waits, slots = self._waits(before), before.slots
        own = mx.broadcast_to(mx.arange(self._beam, dtype=mx.int32), before.scores.shape)
        none = mx.zeros(own.shape, mx.int32)
        still = {Field.LABEL: none - 1, Field.DURATION: none, Field.PARENT: own, Field.ORIGIN: own}
        slots = mx.where(waits[None, :, None], with_fields(slots, still), beam.slots)
        return Beam(
            scores=mx.where(waits[:, None], before.scores, beam.scores),
            slots=with_fields(slots, {Field.ROW: self._rows_of(slots[Field.FRAME, :])}),
            tokens=mx.where(waits[:, None, None], before.tokens, beam.tokens),
            common=mx.where(waits[:, None, None], before.common, beam.common),
            finite=mx.where(waits, before.finite, beam.finite),
            base=mx.where(waits, before.base, beam.base),
        )

    def _waits(self, beam: Beam) -> mx.array:
        """bool [B]: no step can be made, since a hypothesis (at an utterance's end: every hypothesis) has no
        next frame."""
        alive = beam.scores > -mx.inf
        reached = beam.slots[Field.FRAME, :] >= self._known[:, None]
        some, every = mx.any(alive & reached, axis=1), mx.all(~alive | reached, axis=1)
        return mx.where(self._goes_on, some, every) | ~mx.any(alive, axis=1)

    def _rows_of(self, frames: mx.array) -> mx.array:
        first = (mx.arange(self._batch) * self._frames)[:, None]
        return first + mx.clip(frames, 0, self._frames - 1)

    def _finish(self, state: BeamState) -> list[list[Hypothesis]]:
        beam, final_scores, closing = state.beam, state.beam.scores, None
        if self._fusion is not None:
            closing = self._fusion.ends(state.fused, sentence_end=False)
            final_scores = final_scores + (on_grid(closing) if self._limits.fixed else closing)
        if self.recorder is not None:
            end_scores = _absolute(final_scores, beam.base)
            self.recorder.end(end_scores, np.array(self._limits.lengths), closing, sums=True)
        scores = totals(final_scores, beam.base) if self._limits.fixed else np.array(final_scores)
        finite = np.array(beam.finite)
        ends = np.array(beam.slots[Field.FRAME, :])
        utterances: list[list[Hypothesis]] = []
        for utterance, paths in enumerate(self.backtrace.paths()):
            if not finite[utterance]:
                utterances.append([])
                continue
            ranked = rank_hypotheses(paths, scores[utterance], ends[utterance])
            utterances.append([hypothesis for hypothesis, _ in ranked])
        return utterances


def _absolute(scores: mx.array, base: mx.array) -> mx.array:
    """Absolute scores [B, K] from scores relative to `base`, which is 0 where scores are not fixed."""
    return scores + base.astype(mx.float32)[:, None] / ONE


def _longest_running(beam: Beam) -> int:
    """The number of tokens of the longest hypothesis, -1 if none runs; waits for the beam's evaluation."""
    slots, scores = np.array(beam.slots, copy=None), np.array(beam.scores, copy=None)
    runs = (scores > -np.inf) & (slots[Field.STATUS, :] != FINISHED)
    return int(slots[Field.COUNT, :].max()) if runs.any() else -1


def with_fields(slots: mx.array, fields: dict[Field, mx.array]) -> mx.array:
    """`slots` with some of its fields replaced."""
    return mx.stack([fields.get(each, slots[each]) for each in Field]).astype(mx.int32)


def grow_tokens(beam: Beam, tokens: int) -> Beam:
    """The beam with capacity for at least this many tokens."""
    missing = -(-tokens // TOKEN_BLOCK) * TOKEN_BLOCK - beam.tokens.shape[-1]
    if missing <= 0:
        return beam
    return beam._replace(tokens=mx.pad(beam.tokens, [(0, 0), (0, 0), (0, missing)], constant_values=-1))


def rank_hypotheses(
    paths: Sequence[Path], scores: NDArray[np.floating], ends: NDArray[np.int32], before: int = 0
) -> list[tuple[Hypothesis, int]]:
    """The hypotheses of live slots with their slots, best first by score per token (counting the end and
    `before` tokens that were dropped from the paths); ties are broken by content, not by slot."""
    alive = [slot for slot in range(len(paths)) if scores[slot] > -np.inf]
    scored = [(paths[slot].with_score(float(scores[slot])), slot) for slot in alive]

    def rank(ended: tuple[Hypothesis, int]) -> tuple[float, float, tuple[int, ...], int]:
        hypothesis, slot = ended
        per_token = hypothesis.score / (before + len(hypothesis.tokens) + 1)
        return -per_token, -hypothesis.score, hypothesis.tokens, int(ends[slot])

    return sorted(scored, key=rank)


def beam_search(
    transducer: Transducer,
    encoder: mx.array,
    lengths: np.ndarray,
    beam: int,
    max_symbols: int,
    fusion: Fusion | None = None,
    recorder: LatticeRecorder | None = None,
    *,
    fixed: bool = False,
) -> list[list[Hypothesis]]:
    """Up to `beam` hypotheses of each utterance, best by score / (tokens + 1) first; raw scores, float32.

    encoder: [B, T, d_model]; lengths: [B] valid frames; an utterance without frames has one empty hypothesis
    of score 0. A beam can hold fewer than `beam` hypotheses; a TDT beam can hold one transcript twice, with
    different ends. With `fusion`, scores include it. An utterance whose joint gave a NaN or infinite
    normaliser has an empty list. `recorder` keeps what a lattice needs. `fixed` adds and compares scores
    in fixed point (`kernels.search.fixed_point`).
    """
    if encoder.shape[1] == 0:
        return [[Hypothesis((), 0.0, (), ())] for _ in range(encoder.shape[0])]
    projected = transducer.project_encoder(encoder)
    return BeamSearch(transducer, projected, lengths, beam, max_symbols, fusion, recorder, fixed).run()
