"""Beam search over a CTC head: all utterances and all slots of their beams at once, one encoder frame a step.

The semantics are NeMo's `beam_batch`: the best alignment of each prefix stands for it (maximum, not sum), and
two hypotheses are one when their collapsed tokens and their last frames' labels are equal. Unlike NeMo's, an
utterance stops at its own length: padding is not scored. Knows no words and no ranks across utterances.
"""

from typing import NamedTuple

import mlx.core as mx
import numpy as np

from kernels.prefix import Prefixes, empty_prefixes, extend, grow, same_tokens
from kernels.topk import top_k
from worker.decode.fusion import Fusion, FusionState
from worker.decode.hypothesis import Hypothesis
from worker.decode.trail import Emission, Trail

CHECK_EVERY = 8  # frames between two evaluations
TOKEN_BLOCK = 64  # by how many tokens a beam's room grows
THRESHOLD = 20.0  # natural logarithm; hypotheses this far behind the best are given up


class _Beam(NamedTuple):
    """The live state, [B, K]. scores: float32, -inf = dead. last: int32, the last frame's label or blank, -1
    before the first. fused: the fusion's states, [B * K] each."""

    scores: mx.array
    last: mx.array
    prefixes: Prefixes
    fused: FusionState


class CtcBeamSearch:
    """One search over one batch: `log_probs` [B, T, V + 1] with T >= 1, `lengths` [B] frames, 0 allowed."""

    def __init__(
        self, log_probs: mx.array, lengths: np.ndarray, blank: int, beam: int, fusion: Fusion | None
    ) -> None:
        self._log_probs = log_probs.astype(mx.float32)
        self._blank = blank
        self._beam = beam
        self._batch, self._frames, self._width = log_probs.shape
        self._steps = min(self._frames, int(lengths.max(initial=0)))
        self._lengths = mx.array(lengths.astype(np.int32))[:, None]
        self._fusion = fusion
        self._trail = Trail(self._batch, beam)

    def run(self) -> list[list[Hypothesis]]:
        """Hypotheses of each utterance, best first; none for one with a frame that is not a number."""
        beam = self._start()
        for begun in range(0, self._steps, CHECK_EVERY):
            block = range(begun, min(begun + CHECK_EVERY, self._steps))
            longest = int(np.array(beam.prefixes.lengths).max())
            room = -(-(longest + len(block) + 1) // TOKEN_BLOCK) * TOKEN_BLOCK
            beam = beam._replace(prefixes=grow(beam.prefixes, room))
            for frame in block:
                beam = self._step(beam, frame)
            mx.eval(beam, self._trail.latest(len(block)))
        return self._finish(beam)

    def _start(self) -> _Beam:
        shape = (self._batch, self._beam)
        first = mx.arange(self._beam) == 0
        return _Beam(
            scores=mx.broadcast_to(mx.where(first, 0.0, -mx.inf).astype(mx.float32), shape),
            last=mx.full(shape, -1, dtype=mx.int32),
            prefixes=empty_prefixes(*shape, TOKEN_BLOCK),
            fused=self._fusion.start(self._beam) if self._fusion else (),
        )

    def _step(self, beam: _Beam, frame: int) -> _Beam:
        """The best K continuations of each utterance by this frame's labels; one that is over waits."""
        log_probs = self._log_probs[:, frame]
        table, targets = self._scored(beam, log_probs)
        kept, index = top_k(table.reshape(self._batch, -1), self._beam)
        runs = frame < self._lengths
        slots = mx.arange(self._beam)
        alive = (index >= 0) & (kept > kept[:, :1] - THRESHOLD)
        parents = mx.where(runs, mx.maximum(index, 0) // self._width, slots)
        label = mx.where(runs & alive, mx.maximum(index, 0) % self._width, self._blank)
        last = mx.take_along_axis(beam.last, parents, axis=1)
        emits = runs & alive & (label != self._blank) & (label != last)
        emitted = mx.where(emits, label, -1)
        prefixes = extend(beam.prefixes, parents, emitted)
        last = mx.where(runs, label, last)
        same = same_tokens(prefixes) & (last[:, :, None] == last[:, None, :])
        scores = mx.where(runs, _keep_best(mx.where(alive, kept, -mx.inf), same), beam.scores)
        self._trail.append(
            Emission(
                labels=emitted,
                frames=mx.full(emitted.shape, frame, dtype=mx.int32),
                durations=mx.zeros(emitted.shape, mx.int32),
                log_probs=mx.take_along_axis(log_probs, mx.maximum(emitted, 0), axis=1),
                parents=parents,
            )
        )
        fused = beam.fused
        if self._fusion:
            rows = (mx.arange(self._batch)[:, None] * self._beam + parents).reshape(-1)
            fused = self._fusion.follow(fused, targets, rows, emitted.reshape(-1))
        return _Beam(scores, last, prefixes, fused)

    def _scored(self, beam: _Beam, log_probs: mx.array) -> tuple[mx.array, FusionState]:
        """Every continuation's score [B, K, V + 1], and the fusion's states after it."""
        table = beam.scores[..., None] + log_probs[:, None, :]
        if not self._fusion:
            return table, ()
        bonus, targets = self._fusion.look(beam.fused)
        # A frame that repeats a label extends nothing, so it costs nothing.
        repeats = mx.arange(self._blank) == beam.last[..., None]
        bonus = mx.where(repeats, 0.0, bonus.reshape(self._batch, self._beam, -1))
        return table + mx.pad(bonus, [(0, 0), (0, 0), (0, 1)]), targets

    def _finish(self, beam: _Beam) -> list[list[Hypothesis]]:
        scores = beam.scores
        if self._fusion:
            scores = scores + self._fusion.ends(beam.fused, sentence_end=True).reshape(scores.shape)
        inside = mx.arange(self._frames) < self._lengths
        broken = mx.any(inside & ~_is_number(self._log_probs), axis=1)
        ranked, unsound = np.array(scores), np.array(broken)
        found: list[list[Hypothesis]] = []
        for utterance, paths in enumerate(self._trail.paths()):
            alive = [slot for slot in range(self._beam) if ranked[utterance, slot] > -np.inf]
            row = [paths[slot].scored(float(ranked[utterance, slot])) for slot in alive]
            row.sort(key=lambda hypothesis: (-hypothesis.score, hypothesis.tokens, hypothesis.times))
            found.append([] if unsound[utterance] else row)
        return found


def _keep_best(scores: mx.array, same: mx.array) -> mx.array:
    """Of each class of equal slots ([B, K, K]) the best stays (of equal scores the lowest), others die."""
    slots = mx.arange(scores.shape[-1])
    mine, others = scores[:, :, None], scores[:, None, :]
    better = (others > mine) | ((others == mine) & (slots[None, :] < slots[:, None]))
    return mx.where(mx.any(same & better, axis=-1), -mx.inf, scores)


def _is_number(log_probs: mx.array) -> mx.array:
    """bool [B, T]: no label of the frame is NaN, and one at least is possible."""
    # A sum is NaN where an element is; -inf alone is a label that cannot be.
    return mx.isfinite(mx.max(log_probs, axis=-1)) & ~mx.isnan(mx.sum(log_probs, axis=-1))


def ctc_beam_search(
    log_probs: mx.array, lengths: np.ndarray, blank: int, beam: int, fusion: Fusion | None = None
) -> list[list[Hypothesis]]:
    """Up to `beam` hypotheses of each utterance, best raw score first.

    log_probs: [B, T, V + 1], natural logs; lengths: [B] valid frames; an utterance of none has one empty
    hypothesis of score 0 (and what the fusion says of an empty sentence). A token's time is the frame of its
    first label, its duration 0, its confidence the probability there. A beam can hold fewer than `beam`
    hypotheses, and one transcript twice, with and without a blank behind it. An utterance with a frame that
    is not a number has an empty list.
    """
    if log_probs.shape[1] == 0:
        log_probs = mx.zeros((log_probs.shape[0], 1, log_probs.shape[2]))
    return CtcBeamSearch(log_probs, lengths, blank, beam, fusion).run()
