"""A CTC prefix beam that adds up all alignments of a prefix: whole utterances in one launch.

The semantics are those of WeNet's `ctc_prefix_beam_search` (after Hannun et al. 2014, algorithm 1). A prefix
has two sums, over its alignments that end in blank and in its last token, and beside each the best of these
alignments, which says when the tokens were spoken. In each frame the K best labels, blank among them,
continue the K prefixes, and the K best by sum, with what graphs and `beta` add, stay. A repeated label moves
its token's time to the run's last frame, unless the prefix grew there at the same frame by a slot before it.

Graphs (`kernels.search.ngram`) are walked in the same launch, several an utterance. Equal prefixes are found
exactly, by the lengths of common prefixes, as in `kernels.search.ctc_beam`. Sums are relative to the best
one, so that a long utterance loses no precision; the caller adds up how the best one moved.
"""

from typing import NamedTuple

import mlx.core as mx
import numpy as np

from kernels.runtime.device import Output, launch
from kernels.runtime.source import read_kernel
from kernels.search.fixed_point import LEAST, number_on_grid, on_grid
from kernels.search.ngram import Arcs, advance, label_scores
from kernels.search.prefix import Prefixes, empty_prefixes, extend, grow
from kernels.search.topk import top_k

CTC_PREFIX = read_kernel(
    "search/ctc_prefix",
    "log_probs lengths beta starts which alphas count first fallback penalty labels weights targets roots "
    "root_targets",
    "o_ends o_labels o_nodes o_before o_emissions o_base o_added o_fused o_end_nodes o_end_times o_states "
    "o_sound",
    header="ctc_prefix.h",
)
TOKEN_BLOCK = 64  # tokens by which the reference's capacity grows
_CHECK_EVERY = 8  # frames between two evaluations of the reference
_GROUP_BYTES = 31 * 1024  # of a threadgroup's memory on an Apple GPU
_NONE = 8  # elements of an input that is not read; with fewer, MLX would use another address space


class Graphs(NamedTuple):
    """The G graphs of each utterance. arcs: all graphs side by side. which, starts: int32 [B, G], a graph and
    the state where the utterance begins; alphas: float32 [B, G], its weight."""

    arcs: Arcs
    which: mx.array
    starts: mx.array
    alphas: mx.array


class PrefixTrace(NamedTuple):
    """What the beams of a batch did, frame by frame ([B, T, K]), and where they ended ([B, K]).

    ends: float32, sums with fusion, relative to the totals of `base` and `added`; -inf = dead. labels: int32,
    the token that a slot's prefix grew by, -1 where it did not. nodes: int32, for such a token the node of
    the one before, -1 at the root: the token of slot k at frame t is node t * K + k. before: int32, where the
    slot's last token was given the time t, the node of the time of the token before it. emissions: float32,
    that token's log-probability at t. base, added: float32 [B, T], by how much the best hypothesis's sum and
    fusion score moved. fused: float32, each slot's fusion score relative to the sum of `added`. end_nodes,
    end_times: int32, the last nodes, -1 for none. states: int32 [B, K, G] of the graphs. finite: bool [B],
    False where a frame within the utterance has a NaN or no finite maximum; the rest of such a row is
    undefined.
    """

    ends: mx.array
    labels: mx.array
    nodes: mx.array
    before: mx.array
    emissions: mx.array
    base: mx.array
    added: mx.array
    fused: mx.array
    end_nodes: mx.array
    end_times: mx.array
    states: mx.array
    finite: mx.array


def ctc_prefix_beam(
    log_probs: mx.array,
    lengths: mx.array,
    beam: int,
    beta: float = 0.0,
    graphs: Graphs | None = None,
    *,
    fixed: bool = False,
) -> PrefixTrace:
    """Search log_probs, float32 [B, T, W] (natural logs, blank last), lengths int32 [B], 0 to T each.

    beta is added for each token, what graphs give a label times their alphas as well. Of equal totals the
    lower slot's stays, and of a slot's the prefix as it is, then the more probable label; of equal labels the
    lowest counts as more probable. -inf is no candidate. `fixed` puts log-probabilities, beta, what graphs
    add and each sum on the grid of `kernels.search.fixed_point`. Within 1e-5 of the reference in float32.
    Beams too wide for a threadgroup's memory (above 36) take the reference.
    """
    log_probs, beta = log_probs.astype(mx.float32), float(np.float32(beta))
    if fixed:
        log_probs, beta = on_grid(log_probs), number_on_grid(beta)
    batch, frames, width = log_probs.shape
    ranks = min(beam, width)
    count = 1 if graphs is None else graphs.which.shape[1]
    floats = beam * (2 * ranks + 1) + 2 * ranks + 4 * beam**2 + beam * (21 + 2 * count)
    outputs = None
    if frames > 0 and 4 * floats <= _GROUP_BYTES:
        ints: Output = ((batch, frames, beam), mx.int32)
        numbers: Output = ((batch, frames, beam), mx.float32)
        moves: Output = ((batch, frames), mx.float32)
        slots: Output = ((batch, beam), mx.float32)
        nodes: Output = ((batch, beam), mx.int32)
        outputs = launch(
            CTC_PREFIX,
            [log_probs, lengths.astype(mx.int32), mx.array([beta], mx.float32), *_inputs(graphs)],
            [
                *(slots, ints, ints, ints, numbers, moves, moves, slots, nodes, nodes),
                ((batch, beam, count), mx.int32),
                ((batch,), mx.bool_),
            ],
            groups=batch,
            template=(
                ("K", beam),
                ("R", ranks),
                ("G", count),
                ("GRAPHS", graphs is not None),
                ("FIXED", fixed),
            ),
        )
    if outputs is None:
        return ctc_prefix_reference(log_probs, lengths, beam, beta, graphs, fixed=fixed)
    return PrefixTrace(*outputs)


def _inputs(graphs: Graphs | None) -> list[mx.array]:
    if graphs is None:
        ints, floats = mx.zeros((_NONE,), mx.int32), mx.zeros((_NONE,))
        table, targets = mx.zeros((1, _NONE)), mx.zeros((1, _NONE), mx.int32)
        return [ints, ints, floats, ints, ints, ints, floats, ints, floats, ints, table, targets]
    arcs = graphs.arcs
    return [
        *(graphs.starts.astype(mx.int32), graphs.which.astype(mx.int32), graphs.alphas.astype(mx.float32)),
        *(arcs.arc_counts, arcs.first, arcs.fallback, arcs.penalty, arcs.labels, arcs.weights, arcs.targets),
        *(arcs.roots, arcs.root_targets),
    ]


class _Slots(NamedTuple):
    """The live state of the reference, [B, K]; `behind` is what stands before `token_time`."""

    blank_sum: mx.array
    token_sum: mx.array
    blank_best: mx.array
    token_best: mx.array
    fused: mx.array
    last: mx.array
    node: mx.array
    blank_time: mx.array
    token_time: mx.array
    behind: mx.array
    states: mx.array
    prefixes: Prefixes


def _log_add(a: mx.array, b: mx.array, fixed: bool) -> mx.array:
    top, low = mx.maximum(a, b), mx.minimum(a, b)
    more = mx.log(1.0 + mx.exp(mx.where(low > -mx.inf, low - top, -mx.inf)))
    return mx.where(low > -mx.inf, top + (on_grid(more) if fixed else more), top)


def ctc_prefix_reference(
    log_probs: mx.array,
    lengths: mx.array,
    beam: int,
    beta: float = 0.0,
    graphs: Graphs | None = None,
    *,
    fixed: bool = False,
) -> PrefixTrace:
    """The same in plain MLX, frame by frame: contract in `ctc_prefix_beam`."""
    log_probs, beta = log_probs.astype(mx.float32), float(np.float32(beta))
    if fixed:
        log_probs, beta = on_grid(log_probs), number_on_grid(beta)
    batch, frames, _ = log_probs.shape
    state = _start(batch, beam, graphs)
    steps: list[tuple[mx.array, ...]] = []
    inside = mx.arange(frames) < lengths[:, None]
    finite = mx.all(_is_finite(log_probs) | ~inside, axis=1)
    for frame in range(frames):
        if frame % _CHECK_EVERY == 0:
            mx.eval(state, steps[-_CHECK_EVERY:])
            longest = int(np.array(state.prefixes.lengths).max(initial=0))
            room = -(-(longest + _CHECK_EVERY + 1) // TOKEN_BLOCK) * TOKEN_BLOCK
            state = state._replace(prefixes=grow(state.prefixes, room))
        runs = ((frame < lengths) & finite)[:, None]
        row = mx.where(runs, log_probs[:, frame], 0.0)
        state, step = _step(state, row, runs, frame, beta, graphs, fixed)
        steps.append(step)
    labels, nodes, before, emissions, base, added = (
        mx.stack(list(column), axis=1) for column in zip(*steps, strict=True)
    )
    total = _log_add(state.blank_sum, state.token_sum, fixed)
    ends = mx.where(total > -mx.inf, total + state.fused, -mx.inf)
    times = mx.where(state.blank_best > state.token_best, state.blank_time, state.token_time)
    return PrefixTrace(
        *(ends, labels, nodes, before, emissions, base, added),
        *(state.fused, state.node, times, state.states, finite),
    )


def _start(batch: int, beam: int, graphs: Graphs | None) -> _Slots:
    first = mx.broadcast_to(mx.where(mx.arange(beam) == 0, 0.0, -mx.inf), (batch, beam)).astype(mx.float32)
    none, never = mx.full((batch, beam), -1, mx.int32), mx.full((batch, beam), -mx.inf)
    starts = mx.zeros((batch, 1), mx.int32) if graphs is None else graphs.starts.astype(mx.int32)
    states = mx.repeat(starts[:, None], beam, axis=1)
    prefixes = empty_prefixes(batch, beam, TOKEN_BLOCK)
    nothing = mx.zeros((batch, beam))
    return _Slots(first, never, first, never, nothing, none, none, none, none, none, states, prefixes)


def _gains(graphs: Graphs | None, states: mx.array, labels: mx.array, fixed: bool) -> mx.array:
    """What graphs add to each slot for the listed labels [B, R], -1 for none: float32 [B, K, R]."""
    shape = (*states.shape[:2], labels.shape[1])
    if graphs is None:
        return mx.zeros(shape)
    total = None
    for index in range(states.shape[2]):
        which, alphas = graphs.which[:, index], graphs.alphas[:, index]
        total = label_scores(graphs.arcs, mx.contiguous(states[:, :, index]), which, alphas, total)
    assert total is not None
    width = total.shape[-1]
    columns = mx.broadcast_to(mx.clip(labels, 0, width - 1)[:, None], shape)
    taken = mx.take_along_axis(total, columns, axis=2)
    return on_grid(taken) if fixed else taken


class _Frame(NamedTuple):
    """How a frame continues each prefix. listed, labels: [B, R], the best labels. both_sums, most, when: [B,
    K], a slot's sum, its best alignment's score and the node of its times. again: the last token's
    log-probability, -inf where it is not listed. kept_*: [B, K], the prefix as it is. extra: [B, K, R], what
    is added for a label. totals: [B, K, R + 1], of the prefix as it is and by each label."""

    listed: mx.array
    labels: mx.array
    both_sums: mx.array
    most: mx.array
    when: mx.array
    again: mx.array
    kept_blank: mx.array
    kept_blank_best: mx.array
    kept_token: mx.array
    kept_token_best: mx.array
    kept_behind: mx.array
    extra: mx.array
    totals: mx.array


def _continue(old: _Slots, row: mx.array, beta: float, graphs: Graphs | None, fixed: bool) -> _Frame:
    beam, blank = old.last.shape[1], row.shape[1] - 1
    listed, labels = top_k(row, min(beam, row.shape[1]))
    rest = mx.max(mx.where(labels == blank, listed, -mx.inf), axis=1, keepdims=True)
    repeats = labels[:, None] == old.last[..., None]
    is_again = repeats & (labels[:, None] >= 0)
    again = mx.max(mx.where(is_again, listed[:, None], -mx.inf), axis=2)
    both_sums = _log_add(old.blank_sum, old.token_sum, fixed)
    most = mx.maximum(old.blank_best, old.token_best)
    when = mx.where(old.blank_best > old.token_best, old.blank_time, old.token_time)
    alive = both_sums > -mx.inf

    # is_parent[q, p]: the prefix of slot q is that of slot p and one token.
    counts, common = old.prefixes.lengths, old.prefixes.common
    is_parent = (counts[:, :, None] == counts[:, None] + 1) & (common == counts[:, None])
    is_parent = is_parent & alive[:, :, None] & alive[:, None]
    has, parent = mx.any(is_parent, axis=2), mx.argmax(is_parent, axis=2).astype(mx.int32)

    def of_parent(values: mx.array) -> mx.array:
        return mx.take_along_axis(values, parent, axis=1)

    twice = of_parent(old.last) == old.last
    grown = mx.where(has, mx.where(twice, of_parent(old.blank_sum), of_parent(both_sums)), -mx.inf) + again
    grows = mx.where(has, mx.where(twice, of_parent(old.blank_best), of_parent(most)), -mx.inf) + again
    stays = old.token_best + again
    # The slot that comes first sets a time; one behind changes it where it grows, not where it stays.
    takes_grown = has & mx.where(parent > mx.arange(beam), grows > stays, grows > -mx.inf)
    grown_when = mx.where(twice, of_parent(old.blank_time), of_parent(when))
    kept_blank, kept_token = both_sums + rest, _log_add(old.token_sum + again, grown, fixed)
    kept = _log_add(kept_blank, kept_token, fixed) + old.fused

    longer = mx.where(repeats, old.blank_sum[..., None], both_sums[..., None]) + listed[:, None]
    taken = mx.any(is_parent[..., None] & (old.last[:, :, None, None] == labels[:, None, None]), axis=1)
    is_open = (labels[:, None] >= 0) & (labels[:, None] != blank) & ~taken
    extra = _gains(graphs, old.states, labels, fixed) + beta
    longer = mx.where(is_open, longer + (old.fused[..., None] + extra), -mx.inf)
    return _Frame(
        *(listed, labels, both_sums, most, when, again),
        *(kept_blank, most + rest, kept_token, mx.maximum(stays, grows)),
        mx.where(takes_grown, grown_when, old.behind),
        extra,
        mx.concatenate([kept[..., None], longer], axis=2),
    )


def _step(
    old: _Slots,
    row: mx.array,
    runs: mx.array,
    frame: int,
    beta: float,
    graphs: Graphs | None,
    fixed: bool,
) -> tuple[_Slots, tuple[mx.array, ...]]:
    """One frame, row [B, W]; utterances that do not run (bool [B, 1]) wait."""
    batch, beam = old.last.shape
    candidates = _continue(old, row, beta, graphs, fixed)
    ranks = candidates.listed.shape[1]
    _, index = top_k(candidates.totals.reshape(batch, -1), beam)
    none = index < 0
    slot = mx.where(none, 0, index // (ranks + 1))
    place = mx.where(none, 0, index % (ranks + 1))
    grew, column = place > 0, mx.maximum(place - 1, 0)

    def of_slot(values: mx.array) -> mx.array:
        return mx.take_along_axis(values, slot, axis=1)

    def chosen(alone: mx.array, twice: mx.array, kept: mx.array) -> mx.array:
        """Of a prefix that grew: by another token, by its last one again; of one that did not."""
        return mx.where(grew, mx.where(repeated, of_slot(twice), of_slot(alone)), of_slot(kept))

    token = mx.where(grew, mx.take_along_axis(candidates.labels, column, axis=1), -1)
    last_heard = mx.where(
        grew, mx.take_along_axis(candidates.listed, column, axis=1), of_slot(candidates.again)
    )
    repeated = grew & (token == of_slot(old.last))
    spoken = mx.where(grew, last_heard, 0.0)
    token_sum = chosen(candidates.both_sums, old.blank_sum, candidates.kept_token) + spoken
    token_best = chosen(candidates.most, old.blank_best, candidates.kept_token_best) + spoken
    behind = chosen(candidates.when, old.blank_time, candidates.kept_behind)
    token_sum, token_best = (mx.where(none, -mx.inf, each) for each in (token_sum, token_best))
    blank_sum, blank_best = (
        mx.where(none | grew, -mx.inf, of_slot(each))
        for each in (candidates.kept_blank, candidates.kept_blank_best)
    )
    timed = (token_best > -mx.inf) & runs
    new_node = frame * beam + mx.broadcast_to(mx.arange(beam, dtype=mx.int32), (batch, beam))
    gained = mx.take_along_axis(candidates.extra.reshape(batch, -1), slot * ranks + column, axis=1)
    fused = of_slot(old.fused) + mx.where(grew, gained, 0.0)
    base = _log_add(blank_sum[:, 0], token_sum[:, 0], fixed)
    going = (base > -mx.inf) & runs[:, 0]
    base, added = mx.where(going, base, 0.0), mx.where(going, fused[:, 0], 0.0)
    parents, emitted = mx.where(runs, slot, mx.arange(beam)), mx.where(runs, token, -1)
    fresh = _Slots(
        _moved(blank_sum, base, fixed),
        _moved(token_sum, base, fixed),
        _moved(blank_best, base, fixed),
        _moved(token_best, base, fixed),
        fused - added[:, None],
        mx.where(grew, token, of_slot(old.last)),
        mx.where(grew, new_node, of_slot(old.node)),
        mx.where(blank_best > -mx.inf, of_slot(candidates.when), -1),
        mx.where(timed, new_node, -1),
        behind,
        old.states if graphs is None else _walked(graphs, old.states, parents, emitted),
        extend(old.prefixes, parents, emitted),
    )
    step = (
        emitted,
        mx.where(runs & grew, of_slot(old.node), -1),
        mx.where(timed, behind, -1),
        mx.where(timed, last_heard, 0.0),
        base,
        added,
    )
    for name in _Slots._fields[:10]:
        still = mx.where(runs, getattr(fresh, name), getattr(old, name))
        fresh = fresh._replace(**{name: still})  # type: ignore[arg-type]  # of a name that is known
    return fresh, step


def _moved(scores: mx.array, base: mx.array, fixed: bool) -> mx.array:
    less = scores - base[:, None]
    return mx.where(scores > -mx.inf, mx.maximum(less, LEAST), scores) if fixed else less


def _walked(graphs: Graphs, states: mx.array, parents: mx.array, emitted: mx.array) -> mx.array:
    each = [
        advance(graphs.arcs, mx.contiguous(states[:, :, index]), graphs.which[:, index], parents, emitted)
        for index in range(states.shape[2])
    ]
    return mx.stack(each, axis=2)


def _is_finite(log_probs: mx.array) -> mx.array:
    """bool [B, T]: no label of the frame is NaN, and at least one is finite."""
    return mx.isfinite(mx.max(log_probs, axis=-1)) & ~mx.isnan(mx.sum(log_probs, axis=-1))
