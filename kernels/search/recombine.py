"""Turns an expansion into the next beam: slots advanced, equal hypotheses merged.

Steps 5 and 6 of NeMo's `malsd_batch`, for RNNT and TDT. Recombination adds the probabilities of equal
hypotheses and keeps the best-scoring one. `merge` and `recombine_reference` are plain MLX; `recombine` has
the contract of `recombine_reference` and runs a kernel where one is available. Scores on the grid of
`kernels.search.fixed_point` may differ from the reference's by one step. An utterance's results are
bit-identical in any batch, and a NaN in its rows affects no other utterance.

This module knows tokens, frames and which rows of the network's state a slot continues with. It knows neither
logits (see `kernels.search.expand`) nor networks.
"""

from enum import IntEnum
from typing import NamedTuple

import mlx.core as mx

from kernels.runtime.device import launch
from kernels.runtime.source import read_kernel
from kernels.search.expand import FINISHED, FORCED, RUNS, Expansion
from kernels.search.fixed_point import on_grid, rebase
from kernels.search.prefix import Prefixes, extend, same_tokens


def merge(scores: mx.array, same: mx.array) -> mx.array:
    """Add the probability of each class of equal slots onto its best slot; the others die.

    scores: float32 [B, K], natural logs, -inf = dead. same: bool [B, K, K], an equivalence (what it says of
    dead slots is ignored). Returns float32 [B, K]: logsumexp of the class at its best-scoring slot (equal
    scores: lowest slot), -inf elsewhere. The score of a slot that is alone in its class comes back bit for
    bit.
    """
    beam = scores.shape[-1]
    slots = mx.arange(beam)
    alive = scores > -mx.inf
    linked = same & alive[:, None, :]
    own, others = scores[:, :, None], scores[:, None, :]
    better = (others > own) | ((others == own) & (slots[None, :] < slots[:, None]))
    winner = alive & ~mx.any(linked & better, axis=-1)
    total = mx.logsumexp(mx.where(linked, others, -mx.inf), axis=-1)
    crowd = mx.sum(linked, axis=-1) > 1
    return mx.where(winner, mx.where(crowd, total, scores), -mx.inf)


class Field(IntEnum):
    """The rows of `Beam.slots`, int32.

    LABEL: emitted in the last step, -1 where none was. SPOKEN: the frame it was emitted at. DURATION: the
    frames of the last step. PARENT: the slot continued, -1 in a dead slot. FRAME: the next encoder frame.
    HELD: labels since the last advance. COUNT: tokens. ORIGIN: where its network row comes from: p < K is the
    row that slot p had before the step, K + q a row made in this step of slot q's label and parent. ROW: the
    row of its next frame in the encoder's table [B * T]. STATUS: RUNS, FINISHED or FORCED.

    Read one as `slots[Field.ROW, :]`: that is a slice to MLX, where the index alone is a gather.
    """

    LABEL = 0
    SPOKEN = 1
    DURATION = 2
    PARENT = 3
    FRAME = 4
    HELD = 5
    COUNT = 6
    ORIGIN = 7
    ROW = 8
    STATUS = 9


class Beam(NamedTuple):
    """[B, K] hypotheses between two steps: their labels and frames, without network states.

    scores: float32 [B, K], -inf = dead. slots: int32 [len(Field), B, K]. tokens: int32 [B, K, L], undefined
    beyond COUNT. common: int32 [B, K, K], the length of the longest common prefix of two slots. finite: bool
    [B], False once a joint output was not finite. base: int32 [B], what fixed scores are relative to, on the
    grid of `kernels.search.fixed_point`; 0 where they are not fixed.
    """

    scores: mx.array
    slots: mx.array
    tokens: mx.array
    common: mx.array
    finite: mx.array
    base: mx.array


class Limits(NamedTuple):
    """lengths: int32 [B], encoder frames of each utterance. bounds: int32 [2], the frames a row of the
    encoder's table, and the most labels a frame. blank: the id of blank. timed: TDT, where hypotheses are
    equal only at the same frame. fixed: scores stay on the grid of `kernels.search.fixed_point`."""

    lengths: mx.array
    bounds: mx.array
    blank: int
    timed: bool
    fixed: bool = False


def empty_beam(batch: int, beam: int, capacity: int, limits: Limits) -> Beam:
    """One live hypothesis an utterance, at its first frame, and K - 1 dead; room for `capacity` tokens."""
    shape = (batch, beam)
    none = mx.zeros(shape, mx.int32)
    fields = dict.fromkeys(Field, none)
    fields[Field.LABEL] = fields[Field.PARENT] = none - 1
    fields[Field.ROW] = none + (mx.arange(batch) * limits.bounds[0])[:, None]
    fields[Field.STATUS] = none + mx.where(limits.lengths > 0, RUNS, FINISHED)[:, None]
    first = mx.where(mx.arange(beam) == 0, 0.0, -mx.inf).astype(mx.float32)
    return Beam(
        scores=mx.broadcast_to(first, shape),
        slots=mx.stack([fields[field] for field in Field]).astype(mx.int32),
        tokens=mx.full((batch, beam, capacity), -1, dtype=mx.int32),
        common=mx.zeros((batch, beam, beam), mx.int32),
        finite=mx.ones((batch,), mx.bool_),
        base=mx.zeros((batch,), mx.int32),
    )


def recombine_reference(grown: Expansion, beam: Beam, limits: Limits) -> Beam:
    """The beam after an expansion. Every count must be below the capacity L before the call.

    Equal hypotheses (equal tokens; TDT: and equal frames) add their probability onto the best-scoring one, of
    equal scores the lowest slot, whose place and network row survive; the others die. A slot that emitted a
    label and goes on needs the row of a prefix: it takes the one that a live slot with the same tokens has
    already, else the row made for the lowest such slot that emitted it now. Hypotheses of an utterance that
    is not finite die.
    """
    parents, chosen, waits = grown.choice[0], grown.choice[1], grown.choice[2]
    batch, slots = parents.shape
    from_ = mx.maximum(parents, 0)
    rows = mx.arange(batch)[:, None] * slots + from_

    def before(field: Field) -> mx.array:
        return mx.take(beam.slots[field].reshape(-1), rows)

    labels = mx.where((chosen >= 0) & (chosen != limits.blank), chosen, -1)
    emits = labels >= 0
    spoken = before(Field.FRAME)
    frames = spoken + waits
    held = mx.where(waits > 0, 0, before(Field.HELD) + emits.astype(mx.int32))
    prefixes = extend(Prefixes(beam.tokens, beam.slots[Field.COUNT, :], beam.common), parents, labels)
    alike = same_tokens(prefixes)
    same = alike & (frames[:, :, None] == frames[:, None, :]) if limits.timed else alike
    finite = beam.finite & grown.finite
    gained = mx.where(finite[:, None], grown.gains[0], -mx.inf)
    scores = merge(gained, same)
    base = beam.base
    if limits.fixed:
        scores, base = rebase(on_grid(scores), base)
    over = limits.lengths[:, None]
    runs = (scores > -mx.inf) & (frames < over)
    last = mx.maximum(over - 1, 0)
    fields = {
        Field.LABEL: labels,
        Field.SPOKEN: spoken,
        Field.DURATION: waits,
        Field.PARENT: parents,
        Field.FRAME: frames,
        Field.HELD: held,
        Field.COUNT: prefixes.lengths,
        Field.ORIGIN: _origins(from_, alike, runs, emits),
        Field.ROW: mx.arange(batch)[:, None] * limits.bounds[0] + mx.minimum(frames, last),
        Field.STATUS: mx.where(frames >= over, FINISHED, mx.where(held >= limits.bounds[1], FORCED, RUNS)),
    }
    table = mx.stack([fields[field] for field in Field]).astype(mx.int32)
    return Beam(scores, table, prefixes.tokens, prefixes.common, finite, base)


def _origins(parents: mx.array, alike: mx.array, runs: mx.array, emits: mx.array) -> mx.array:
    """Where each slot's network row comes from, as Field.ORIGIN says."""
    slots = parents.shape[1]
    reads, keeps = runs & emits, runs & ~emits
    kept, read = alike & keeps[:, None, :], alike & reads[:, None, :]
    first_kept = mx.argmax(kept, axis=-1)
    first_read = mx.argmax(read, axis=-1).astype(mx.int32)
    new = mx.where(mx.any(kept, axis=-1), mx.take_along_axis(parents, first_kept, axis=1), slots + first_read)
    return mx.where(reads, new, parents)


RECOMBINE = read_kernel(
    "search/recombine",
    "gains choice finite slots_before tokens common sound base lengths limits",
    "o_scores o_slots o_tokens o_common o_sound o_base",
)


def recombine(grown: Expansion, beam: Beam, limits: Limits) -> Beam:
    """The beam after an expansion: contract in `recombine_reference`; merged scores within 1e-6 of it."""
    batch, slots = beam.scores.shape
    outputs = launch(
        RECOMBINE,
        [
            grown.gains,
            grown.choice,
            grown.finite,
            beam.slots,
            beam.tokens,
            beam.common,
            beam.finite,
            beam.base,
            limits.lengths,
            limits.bounds,
        ],
        [
            ((batch, slots), mx.float32),
            ((len(Field), batch, slots), mx.int32),
            (beam.tokens.shape, mx.int32),
            (beam.common.shape, mx.int32),
            ((batch,), mx.bool_),
            ((batch,), mx.int32),
        ],
        groups=batch,
        template=(("K", slots), ("BLANK", limits.blank), ("TIMED", limits.timed), ("FIXED", limits.fixed)),
    )
    return recombine_reference(grown, beam, limits) if outputs is None else Beam(*outputs)
