"""A CTC prefix beam: one frame in plain MLX, and whole utterances in one kernel launch.

The semantics are those of NeMo's `beam_batch`: a prefix is scored by its best alignment (maximum, not sum),
and two hypotheses are equal when their collapsed tokens and their last frames' labels are equal. `ctc_step`
advances the beam by one frame and takes an optional fusion bonus, wherever that comes from.

`ctc_beam` decodes whole utterances without fusion; `ctc_beam_reference` does the same in plain MLX, frame by
frame. For each pair of slots the kernel keeps the length of their common prefix and the token after it, so it
detects equal prefixes exactly, without hashes or full token sequences. All slots see the same
log-probabilities, so K + 1 labels per frame are enough candidates. The kernel only adds and compares, in the
reference's order: the two agree bit for bit.
"""

from typing import NamedTuple

import mlx.core as mx
import numpy as np

from kernels.runtime.device import Output, launch
from kernels.runtime.source import read_kernel
from kernels.search.fixed_point import number_on_grid, on_grid, rebase
from kernels.search.prefix import Prefixes, empty_prefixes, extend, grow, same_tokens
from kernels.search.topk import top_k


class CtcBeam(NamedTuple):
    """The live state, [B, K]. scores: float32, -inf = dead. last: int32, the last frame's label or blank, -1
    before the first frame."""

    scores: mx.array
    last: mx.array
    prefixes: Prefixes


class CtcStep(NamedTuple):
    """What a frame did, [B, K]. parents: int32, the slot continued. labels: int32, emitted, -1 where none
    was. gained: float32, the score before recombination."""

    parents: mx.array
    labels: mx.array
    gained: mx.array


def start_ctc(batch: int, beam: int, capacity: int) -> CtcBeam:
    """One empty hypothesis an utterance, with room for `capacity` tokens."""
    first = mx.where(mx.arange(beam) == 0, 0.0, -mx.inf).astype(mx.float32)
    return CtcBeam(
        scores=mx.broadcast_to(first, (batch, beam)),
        last=mx.full((batch, beam), -1, dtype=mx.int32),
        prefixes=empty_prefixes(batch, beam, capacity),
    )


def ctc_step(
    beam: CtcBeam,
    log_probs: mx.array,
    runs: mx.array,
    beta: float,
    threshold: float,
    bonus: mx.array | None = None,
) -> tuple[CtcBeam, CtcStep]:
    """Continue the beams of those utterances that run by one frame; the others wait.

    log_probs: float32 [B, W], blank last. runs: bool [B]. A continuation by the last label again, or by
    blank, scores s + log_prob; by another label ((s + log_prob) + beta) + bonus, bonus float32 [B, K, W - 1].
    The K best stay (of equal ones the lower slot's, and of a slot's the repeated label, then labels from the
    lowest, then blank) unless they are `threshold` or more behind the best; of equal hypotheses the best
    stays. -inf and NaN are no candidates.
    """
    batch, slots = beam.scores.shape
    width, blank = log_probs.shape[1], log_probs.shape[1] - 1
    table = beam.scores[..., None] + log_probs[:, None, :]
    fresh = table[..., :blank] + beta
    if bonus is not None:
        fresh = fresh + bonus
    speaks = (beam.last >= 0) & (beam.last < blank)
    repeated = mx.take_along_axis(table, mx.maximum(beam.last, 0)[..., None], axis=-1)
    repeated = mx.where(speaks[..., None], repeated, -mx.inf)
    fresh = mx.where(mx.arange(blank) == beam.last[..., None], -mx.inf, fresh)
    table = mx.concatenate([repeated, fresh, table[..., blank:]], axis=-1)

    kept, index = top_k(table.reshape(batch, -1), slots)
    runs = runs[:, None]
    alive = (index >= 0) & (kept > kept[:, :1] - threshold)
    parents = mx.where(alive, index // (width + 1), 0)
    place = mx.where(alive, index % (width + 1), width)
    label = mx.where(place == 0, mx.take_along_axis(beam.last, parents, axis=1), place - 1)
    labels = mx.where(runs & (place > 0) & (label != blank), label, -1)
    parents = mx.where(runs, parents, mx.arange(slots))
    last = mx.where(runs, label, beam.last)
    gained = mx.where(runs, mx.where(alive, kept, -mx.inf), beam.scores)
    prefixes = extend(beam.prefixes, parents, labels)
    same = same_tokens(prefixes) & (last[:, :, None] == last[:, None, :])
    scores = mx.where(runs, _keep_best(gained, same), beam.scores)
    return CtcBeam(scores, last, prefixes), CtcStep(parents, labels, gained)


def _keep_best(scores: mx.array, same: mx.array) -> mx.array:
    """Of each class of equal slots ([B, K, K]) the best stays (of equal scores the lowest), others die."""
    slots = mx.arange(scores.shape[-1])
    own, others = scores[:, :, None], scores[:, None, :]
    better = (others > own) | ((others == own) & (slots[None, :] < slots[:, None]))
    return mx.where(mx.any(same & better, axis=-1), -mx.inf, scores)


CTC_BEAM = read_kernel(
    "search/ctc_beam",
    "log_probs lengths knobs",
    "o_ends o_labels o_parents o_nodes o_last o_emissions o_gained o_scores o_end_nodes o_sound o_base",
)
TOKEN_BLOCK = 64  # tokens by which the reference's capacity grows
_CHECK_EVERY = 8  # frames between two evaluations of the reference
_GROUP_BYTES = 31 * 1024  # of a threadgroup's memory on an Apple GPU


class CtcBacktrace(NamedTuple):
    """What the beams of a batch did, frame by frame ([B, T, K]), and where they ended ([B, K]).

    ends: float32, the final scores. labels: int32, emitted, -1 where none was. parents: int32, the slot
    continued. nodes: int32, for each emission the one before it, -1 for the first: the emission of slot k at
    frame t is node t * K + k. last: int32, the label of the frame, or blank. emissions: float32, the emitted
    label's log-probability, 0 where none was. gained, scores: float32, before and after recombination, -inf =
    dead. end_nodes: int32, the last emissions, -1 for none. finite: bool [B], False where a frame within the
    utterance has a NaN or no finite maximum; the rest of such a row is undefined. base: int32 [B, T], where
    scores are fixed (`kernels.search.fixed_point`) the best score in 65536ths, to which gained, scores and
    ends (the last base) are relative; else 0.

    Past an utterance's end its beam does not change: labels and nodes are -1, parents the slots themselves.
    """

    ends: mx.array
    labels: mx.array
    parents: mx.array
    nodes: mx.array
    last: mx.array
    emissions: mx.array
    gained: mx.array
    scores: mx.array
    end_nodes: mx.array
    finite: mx.array
    base: mx.array


def ctc_beam(
    log_probs: mx.array,
    lengths: mx.array,
    beam: int,
    beta: float = 0.0,
    threshold: float = 20.0,
    *,
    fixed: bool = False,
) -> CtcBacktrace:
    """Search log_probs, float32 [B, T, W] (natural logs, blank last), lengths int32 [B], 0 to T each.

    The steps are those of `kernels.search.ctc_beam`, without bonus. `fixed` puts the log-probabilities and
    beta on the grid first; the threshold is then at most 100. Beams too wide for a threadgroup's memory
    (above 37) take the reference.
    """
    if fixed:
        log_probs, beta, threshold = _put_on_grid(log_probs, beta, threshold)
    batch, frames, width = log_probs.shape
    ranks = min(beam + 1, width - 1)
    outputs = None
    if ranks > 0 and frames > 0 and 4 * (beam * (ranks + 2) + 4 * beam**2 + 10 * beam) <= _GROUP_BYTES:
        ints: Output = ((batch, frames, beam), mx.int32)
        floats: Output = ((batch, frames, beam), mx.float32)
        ends: list[Output] = [((batch, beam), mx.int32), ((batch,), mx.bool_), ((batch, frames), mx.int32)]
        outputs = launch(
            CTC_BEAM,
            [log_probs.astype(mx.float32), lengths.astype(mx.int32), mx.array([beta, threshold], mx.float32)],
            [((batch, beam), mx.float32), ints, ints, ints, ints, floats, floats, floats, *ends],
            groups=batch,
            template=(("K", beam), ("R", ranks), ("FIXED", fixed)),
        )
    if outputs is None:
        return ctc_beam_reference(log_probs, lengths, beam, beta, threshold, fixed=fixed)
    return CtcBacktrace(*outputs)


def _put_on_grid(log_probs: mx.array, beta: float, threshold: float) -> tuple[mx.array, float, float]:
    return on_grid(log_probs.astype(mx.float32)), number_on_grid(beta), min(threshold, 100.0)


def ctc_beam_reference(
    log_probs: mx.array,
    lengths: mx.array,
    beam: int,
    beta: float = 0.0,
    threshold: float = 20.0,
    *,
    fixed: bool = False,
) -> CtcBacktrace:
    """The same in plain MLX: contract in `ctc_beam`, in this module."""
    if fixed:
        log_probs, beta, threshold = _put_on_grid(log_probs, beta, threshold)
    batch, frames, _ = log_probs.shape
    log_probs = log_probs.astype(mx.float32)
    state = start_ctc(batch, beam, TOKEN_BLOCK)
    node = mx.full((batch, beam), -1, dtype=mx.int32)
    base = mx.zeros((batch,), mx.int32)
    steps: list[tuple[mx.array, ...]] = []
    for frame in range(frames):
        if frame % _CHECK_EVERY == 0:
            mx.eval(state, node, base, steps[-_CHECK_EVERY:])
            longest = int(np.array(state.prefixes.lengths).max(initial=0))
            room = -(-(longest + _CHECK_EVERY + 1) // TOKEN_BLOCK) * TOKEN_BLOCK
            state = state._replace(prefixes=grow(state.prefixes, room))
        row = log_probs[:, frame]
        state, step = ctc_step(state, row, frame < lengths, beta, threshold)
        gained = step.gained
        if fixed:
            gained, base = rebase(gained, base)
            # The best hypothesis survives recombination, so both are rebased by the same amount.
            state = state._replace(scores=rebase(state.scores, base)[0])
        before = mx.take_along_axis(node, step.parents, axis=1)
        emits = step.labels >= 0
        label_log_probs = mx.take_along_axis(row, mx.maximum(step.labels, 0), axis=1)
        node = mx.where(emits, frame * beam + mx.arange(beam), before)
        steps.append(
            (
                step.labels,
                step.parents,
                mx.where(emits, before, -1),
                state.last,
                mx.where(emits, label_log_probs, 0.0),
                gained,
                state.scores,
                base,
            )
        )
    labels, parents, nodes, last, spoken, gained, scores, bases = (
        mx.stack(list(column), axis=1) for column in zip(*steps, strict=True)
    )
    inside = mx.arange(frames) < lengths[:, None]
    finite = mx.all(_is_finite(log_probs) | ~inside, axis=1)
    return CtcBacktrace(
        state.scores, labels, parents, nodes, last, spoken, gained, scores, node, finite, bases
    )


def _is_finite(log_probs: mx.array) -> mx.array:
    """bool [B, T]: no label of the frame is NaN, and at least one is finite."""
    # A sum is NaN where an element is; -inf alone marks an impossible label.
    return mx.isfinite(mx.max(log_probs, axis=-1)) & ~mx.isnan(mx.sum(log_probs, axis=-1))
