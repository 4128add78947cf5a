"""Beam search over a transducer's graph, all utterances and all slots of their beams at once.

The semantics are those of NeMo's `malsd_batch` (modified alignment-length synchronous decoding, after
"Alignment-Length Synchronous Decoding for RNN Transducer", Saon et al., 2020, with the bound on labels a
frame), for RNNT and TDT. The loop is over steps alone: every utterance ends at its own length, keeps its
place in the batch, and what its neighbours do changes nothing. Knows the order of the steps;
`kernels.beam_step` owns the arithmetic of each, by kernel or by plain-MLX reference.
"""

from functools import partial
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from kernels.beam_step import expand, merge
from kernels.expand import Expansion
from kernels.prefix import Prefixes, empty_prefixes, extend, grow, same_tokens
from worker.decode.advance import advance
from worker.decode.fused_expand import expand_fused
from worker.decode.fusion import Fusion, FusionState
from worker.decode.hypothesis import Hypothesis
from worker.decode.keeper import Keeper
from worker.decode.trail import Emission, Trail
from worker.model.joint import Transducer
from worker.model.prediction import LstmState

CHECK_EVERY = 8  # steps between two questions to the device whether anything still runs
TOKEN_BLOCK = 64  # by how many tokens a beam's room grows


class _Beam(NamedTuple):
    """The live state: [B, K] arrays, and [B * K, ...] for the network's rows.

    scores: float32, -inf = dead. frames: int32, the next encoder frame. held: int32, labels since the last
    advance. output: the projected prediction output. sound: bool [B], no utterance with a non-finite joint.
    fused: the fusion's states.
    """

    scores: mx.array
    frames: mx.array
    held: mx.array
    prefixes: Prefixes
    output: mx.array
    state: LstmState
    sound: mx.array
    fused: FusionState


class BeamSearch:
    """One search over one batch: `encoder` [B, T, d_model] with T >= 1, `lengths` [B] frames, 0 allowed."""

    def __init__(
        self,
        transducer: Transducer,
        encoder: mx.array,
        lengths: np.ndarray,
        beam: int,
        max_symbols: int,
        fusion: Fusion | None,
        keeper: Keeper | None,
    ) -> None:
        self._transducer = transducer
        self._fusion = fusion
        self._keeper = keeper
        self._beam = beam
        self._max_symbols = max_symbols
        self._batch, self._frames = encoder.shape[:2]
        self._lengths = mx.array(lengths.astype(np.int32))[:, None]
        projected = transducer.project_encoder(encoder)
        self._encoder = projected.reshape(self._batch * self._frames, -1)
        self._durations = None if transducer.durations is None else mx.array(transducer.durations, mx.int32)
        self._trail = Trail(self._batch, beam)

    def run(self) -> list[list[Hypothesis]]:
        """Hypotheses of each utterance, best first; none for one whose logits were not finite."""
        beam = self._start()
        steps = 0
        while self._goes_on(beam, steps):
            longest = int(np.array(beam.prefixes.lengths).max())
            room = -(-(longest + CHECK_EVERY + 1) // TOKEN_BLOCK) * TOKEN_BLOCK
            beam = beam._replace(prefixes=grow(beam.prefixes, room))
            for _ in range(CHECK_EVERY):
                beam = self._step(beam)
            steps += CHECK_EVERY
        return self._finish(beam)

    def _start(self) -> _Beam:
        shape = (self._batch, self._beam)
        output, state = self._transducer.start(self._batch * self._beam)
        first = mx.arange(self._beam) == 0
        return _Beam(
            scores=mx.broadcast_to(mx.where(first, 0.0, -mx.inf).astype(mx.float32), shape),
            frames=mx.zeros(shape, mx.int32),
            held=mx.zeros(shape, mx.int32),
            prefixes=empty_prefixes(*shape, TOKEN_BLOCK),
            output=output,
            state=state,
            sound=mx.ones((self._batch,), mx.bool_),
            fused=self._fusion.start(self._beam) if self._fusion else (),
        )

    def _goes_on(self, beam: _Beam, steps: int) -> bool:
        running = mx.any((beam.scores > -mx.inf) & (beam.frames < self._lengths))
        latest = min(steps, CHECK_EVERY)
        kept = self._keeper.latest(latest) if self._keeper else []
        mx.eval(running, beam, self._trail.latest(latest), kept)
        return bool(running.item())

    def _step(self, beam: _Beam) -> _Beam:
        grown, targets, bonus = self._expand(beam)
        rows = (mx.arange(self._batch)[:, None] * self._beam + mx.maximum(grown.parents, 0)).reshape(-1)
        emits = (grown.labels >= 0) & (grown.labels != self._transducer.blank)
        labels = mx.where(emits, grown.labels, -1)
        emitted_at = mx.take(beam.frames, rows).reshape(emits.shape)
        frames = emitted_at + grown.durations
        held = mx.where(
            grown.durations > 0, 0, mx.take(beam.held, rows).reshape(emits.shape) + emits.astype(mx.int32)
        )
        prefixes = extend(beam.prefixes, grown.parents, labels)
        sound = beam.sound & grown.finite
        same = same_tokens(prefixes)
        if self._durations is not None:
            same = same & (frames[:, :, None] == frames[:, None, :])
        gained = mx.where(sound[:, None], grown.scores, -mx.inf)
        scores = merge(gained, same)

        output, state = mx.take(beam.output, rows, axis=0), beam.state.take(rows)
        reads = emits & (scores > -mx.inf) & (frames < self._lengths)
        output, state = advance(self._transducer, labels.reshape(-1), reads.reshape(-1), output, state)
        emission = Emission(labels, emitted_at, grown.durations, grown.label_scores, grown.parents)
        self._trail.append(emission)
        if self._keeper is not None:
            self._keeper.step(
                emission, gained, scores, None if bonus is None else _given(bonus, rows, labels)
            )
        return _Beam(
            scores=scores,
            frames=frames,
            held=held,
            prefixes=prefixes,
            output=output,
            state=state,
            sound=sound,
            fused=Fusion.follow(beam.fused, targets, rows, labels.reshape(-1)),
        )

    def _expand(self, beam: _Beam) -> tuple[Expansion, FusionState, mx.array | None]:
        """The joint at each slot's frame, the K best continuations of each utterance, where each token leads
        the fusion, and what that gives for it."""
        shape = (self._batch, self._beam, -1)
        finished = beam.frames >= self._lengths
        at = mx.minimum(beam.frames, mx.maximum(self._lengths - 1, 0))
        rows = (mx.arange(self._batch)[:, None] * self._frames + at).reshape(-1)
        labels, durations = self._transducer.logits(mx.take(self._encoder, rows, axis=0), beam.output)
        table = (
            labels.reshape(shape),
            None if durations is None else durations.reshape(shape),
            self._durations,
            beam.scores,
            finished,
            beam.held >= self._max_symbols,
        )
        if self._fusion is None:
            return expand(*table), (), None
        bonus, targets = self._fusion.look(beam.fused)
        combine = partial(self._fusion.combine, bonus=bonus.reshape(shape))
        return expand_fused(*table, combine), targets, bonus

    def _finish(self, beam: _Beam) -> list[list[Hypothesis]]:
        ended, closing = beam.scores, None
        if self._fusion is not None:
            closing = self._fusion.ends(beam.fused, sentence_end=False).reshape(ended.shape)
            ended = ended + closing
        if self._keeper is not None:
            self._keeper.end(ended, np.array(self._lengths)[:, 0], closing, sums=True)
        scores, sound = np.array(ended), np.array(beam.sound)
        ends = np.array(beam.frames)
        found: list[list[Hypothesis]] = []
        for utterance, paths in enumerate(self._trail.paths()):
            if not sound[utterance]:
                found.append([])
                continue
            alive = [slot for slot in range(self._beam) if scores[utterance, slot] > -np.inf]
            row = [
                (paths[slot].scored(float(scores[utterance, slot])), int(ends[utterance, slot]))
                for slot in alive
            ]
            found.append([hypothesis for hypothesis, _ in sorted(row, key=_rank)])
        return found


def _rank(ended: tuple[Hypothesis, int]) -> tuple[float, float, tuple[int, ...], int]:
    """Best first by score a token (the end counts as one); ties settled by what was found, not by slot."""
    hypothesis, end = ended
    return -hypothesis.score / (len(hypothesis.tokens) + 1), -hypothesis.score, hypothesis.tokens, end


def beam_search(
    transducer: Transducer,
    encoder: mx.array,
    lengths: np.ndarray,
    beam: int,
    max_symbols: int,
    fusion: Fusion | None = None,
    keeper: Keeper | None = None,
) -> list[list[Hypothesis]]:
    """Up to `beam` hypotheses of each utterance, best by score / (tokens + 1) first; raw scores, float32.

    encoder: [B, T, d_model]; lengths: [B] valid frames; an utterance of none has one empty hypothesis of
    score 0. A beam can hold fewer than `beam` hypotheses; a TDT beam can hold one transcript twice, with
    different ends. With `fusion` scores are fused ones. An utterance whose joint gave a NaN or infinite
    normaliser has an empty list. `keeper` keeps what a lattice needs.
    """
    if encoder.shape[1] == 0:
        return [[Hypothesis((), 0.0, (), ())] for _ in range(encoder.shape[0])]
    return BeamSearch(transducer, encoder, lengths, beam, max_symbols, fusion, keeper).run()


def _given(bonus: mx.array, rows: mx.array, labels: mx.array) -> mx.array:
    """What fusion gave each of `labels` [B, K] behind hypothesis rows[n]; 0 for a negative one."""
    table = bonus.reshape(-1, bonus.shape[-1])
    found = mx.take(table.reshape(-1), rows * table.shape[1] + mx.maximum(labels, 0).reshape(-1))
    return mx.where(labels >= 0, found.reshape(labels.shape), 0.0)
