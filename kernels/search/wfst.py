"""Token passing over a weighted graph (WFST): whole utterances in one launch, and their exact lattices.

The search is that of Kaldi's FasterDecoder, made independent of order (after Chen et al. 2018 and Braun et
al. 2019, who share arcs between the lanes of a GPU): costs are integers (Q16.16), a state keeps the cheapest
path to it, and the states of a frame are a set. Each frame applies a cutoff (`beam`, and the most active
states), follows emitting arcs, relaxes epsilon arcs in rounds, and drops states `beam` or more behind the
best. `wfst_links` then goes back through the same frames: a link stays if and only if the best path through
it is within `reach` of the best of all. Integers make that exact, so no links need be kept in the forward
pass; equal costs are ordered by (frame, arc), the same on every machine.

The kernels share arcs, not states, among the lanes, and keep states in a hash table for each utterance.
Kernel and reference (numpy) agree to the bit, except for the order of tokens within a frame and of links.
"""

from typing import NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.runtime.device import launch, on_gpu
from kernels.runtime.source import read_kernel
from kernels.search.fixed_point import ONE

GRAPH = "first emitting labels targets weights"
SEARCH = read_kernel(
    "search/wfst_search",
    f"costs lengths {GRAPH} knobs",
    "o_first o_base o_states o_costs o_report o_keys o_totals o_marks o_held o_queues",
    header="wfst.h",
)
LATTICE = read_kernel(
    "search/wfst_lattice",
    f"costs lengths {GRAPH} finals first_token base states alphas knobs",
    "o_report o_links o_keys o_betas o_places",
    header="wfst.h",
)
NEVER = 0x3FFFFFFF  # as a final cost: not final; as a label's cost: impossible
_MOST = 0x7FFFFFFF
_MAX_COST = 8000.0  # natural logarithm; a label costs no more, so that sums stay within 32 bits
_STATES_PER_FRAME = 2048  # initial capacity
_TOKENS_AT_FIRST = 1 << 25  # initial capacity for all frames and utterances
LINKS_PER_FRAME = 64  # initial capacity
_SURPLUS_STATES = 256  # states that lanes may add at once before the limit is noticed
FULL, DEAD = 1, 2


class WfstGraph(NamedTuple):
    """S states, M arcs; int32.

    first [S + 1]: where a state's arcs begin; the emitting ones come first, emitting [S] of them. labels [M]:
    v + 1 for column v of the log-probabilities, 0 for epsilon. targets [M]: states. weights [M], finals [S]:
    costs in 65536ths, NEVER where a state is not final. start: a state. depth: the length of the longest
    path of epsilon arcs, which contain no cycle.
    """

    first: mx.array
    emitting: mx.array
    labels: mx.array
    targets: mx.array
    weights: mx.array
    finals: mx.array
    start: int
    depth: int


class WfstLimits(NamedTuple):
    """beam, penalty: in 65536ths; penalty is added to emitting arcs that are not self-loops. most_active: the
    states of a frame that are expanded. limit: the most states of a frame; where more are within the beam,
    the beam is halved in that frame until they fit."""

    beam: int
    most_active: int = 7000
    penalty: int = 0
    limit: int = 28_000


class WfstTokens(NamedTuple):
    """States reached in each frame of a batch, int32; frame f follows f rows of log-probabilities.

    first_token [B, T + 2]: where a frame's tokens begin. base [B, T + 1]: what a frame's costs are relative
    to, itself relative to the frame before. states, costs [B, room], unordered within a frame. report [B, 4]:
    0 or DEAD (no path went on), tokens, frames whose beam was narrowed, most states of a frame.
    """

    first_token: mx.array
    base: mx.array
    states: mx.array
    costs: mx.array
    report: mx.array


class WfstLinks(NamedTuple):
    """The links of an utterance's lattice, sorted by frame and arc; int32. behind: how much worse the best
    path through the link is than the best path. best: the cost of the best path, relative to the sum of the
    tokens' base. final: whether it ends in a final state."""

    frames: NDArray[np.int32]
    arcs: NDArray[np.int32]
    behind: NDArray[np.int32]
    best: int
    final: bool


def grid_costs(log_probs: mx.array, scale: float = 1.0) -> mx.array:
    """float32 log-probabilities times `scale` as int32 costs in 65536ths, halves up; NEVER if not finite."""
    scaled = mx.clip(-log_probs.astype(mx.float32) * scale, -_MAX_COST, _MAX_COST)
    units = mx.floor(scaled * ONE + 0.5)
    return mx.where(mx.isfinite(log_probs), units, NEVER).astype(mx.int32)


def wfst_tokens(
    costs: mx.array, lengths: mx.array, graph: WfstGraph, limits: WfstLimits, room: int | None = None
) -> WfstTokens:
    """Search int32 costs [B, T, V] (`grid_costs`), lengths int32 [B], 0 to T each. room: the initial capacity
    in tokens of an utterance; utterances that need more are searched again."""
    costs, lengths = _pad_empty(costs), lengths.astype(mx.int32)
    batch, frames = costs.shape[:2]
    limit = min(limits.limit, graph.finals.size)
    places = 1 << (2 * limit + _SURPLUS_STATES).bit_length()
    most = (frames + 1) * limit
    room = min(
        most,
        room or min((frames + 1) * _STATES_PER_FRAME, max(_TOKENS_AT_FIRST // max(batch, 1), frames + 1)),
    )
    while True:
        knobs = [graph.start, limits.beam, limits.most_active, limits.penalty, limit, room, places - 1]
        outputs = launch(
            SEARCH,
            [costs, lengths, *_arrays(graph), mx.array([*knobs, graph.depth], mx.int32)],
            [
                *(((batch, frames + 2), mx.int32), ((batch, frames + 1), mx.int32)),
                *(((batch, room), mx.int32), ((batch, room), mx.int32), ((batch, 4), mx.int32)),
                *(((batch, places), mx.int32),) * 3,
                *(((batch, limit), mx.int32), ((batch, 2, limit), mx.int32)),
            ],
            groups=batch,
            simdgroups=_simdgroups(),
        )
        if outputs is None:
            return wfst_tokens_reference(costs, lengths, graph, limits)
        tokens = WfstTokens(*outputs[:5])
        mx.eval(tokens)
        full = np.flatnonzero(np.array(tokens.report[:, 0]) == FULL)
        if room == most or len(full) == 0:
            return tokens
        if batch > 1:
            return _retry_full(tokens, full, costs, lengths, graph, limits, room)
        room = min(most, 4 * room)


def _retry_full(
    tokens: WfstTokens,
    full: NDArray[np.int64],
    costs: mx.array,
    lengths: mx.array,
    graph: WfstGraph,
    limits: WfstLimits,
    room: int,
) -> WfstTokens:
    """The batch's tokens after searching the utterances that ran out of room again, each by itself."""
    alone = {
        row: wfst_tokens(costs[row : row + 1], lengths[row : row + 1], graph, limits, 4 * room)
        for row in full.tolist()
    }
    rows = [
        alone.get(row) or WfstTokens(*(each[row : row + 1] for each in tokens)) for row in range(len(costs))
    ]
    taken = max(int(np.array(each.report[0, 1])) for each in rows)
    columns = []
    for name in WfstTokens._fields:
        parts = [getattr(each, name) for each in rows]
        if name in ("states", "costs"):
            parts = [mx.pad(each[:, :taken], [(0, 0), (0, max(taken - each.shape[1], 0))]) for each in parts]
        columns.append(mx.concatenate(parts))
    mx.eval(columns)
    return WfstTokens(*columns)


def wfst_links(
    costs: mx.array,
    lengths: mx.array,
    graph: WfstGraph,
    tokens: WfstTokens,
    reach: int,
    limits: WfstLimits,
    most: int = 1 << 20,
) -> list[WfstLinks]:
    """For each utterance the links within `reach` (65536ths) of its best path; none if the search died. While
    an utterance has more than `most` links, its reach is halved."""
    costs, lengths = _pad_empty(costs), lengths.astype(mx.int32)
    room = min(most, (costs.shape[1] + 1) * LINKS_PER_FRAME)
    report, links = _links(costs, lengths, graph, tokens, reach, limits, room)
    if report[:, 0].max(initial=0) > room:
        room = min(most, int(report[:, 0].max()))
        report, links = _links(costs, lengths, graph, tokens, reach, limits, room)
    lattices = []
    for row, (count, best, final, _) in enumerate(report.tolist()):
        if count <= room:
            frames, arcs, behind = links[row, :count].T
            order = np.lexsort((arcs, frames))
            lattices.append(WfstLinks(frames[order], arcs[order], behind[order], best, bool(final)))
            continue
        single = WfstTokens(*(each[row : row + 1] for each in tokens))
        lattices += wfst_links(
            costs[row : row + 1], lengths[row : row + 1], graph, single, reach // 2, limits, most
        )
    return lattices


def _links(
    costs: mx.array,
    lengths: mx.array,
    graph: WfstGraph,
    tokens: WfstTokens,
    reach: int,
    limits: WfstLimits,
    room: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The report of `wfst_lattice` for each utterance [B, 4], and its links [B, room, 3]."""
    batch = len(costs)
    limit = max(1, int(np.array(tokens.report[:, 3]).max(initial=1)))
    places = 1 << (2 * limit).bit_length()
    knobs = [reach, room, limits.penalty, limit, tokens.states.shape[1], places - 1, graph.depth, 0]
    outputs = launch(
        LATTICE,
        [
            *(costs, lengths, *_arrays(graph), graph.finals, tokens.first_token, tokens.base),
            *(tokens.states, tokens.costs, mx.array(knobs, mx.int32)),
        ],
        [
            *(((batch, 4), mx.int32), ((batch, room, 3), mx.int32)),
            *(((batch, 2, places), mx.int32), ((batch, 2, places), mx.int32), ((batch, 2, limit), mx.int32)),
        ],
        groups=batch,
        simdgroups=_simdgroups(),
    )
    if outputs is None:
        return wfst_links_reference(costs, lengths, graph, tokens, reach, limits, room)
    mx.eval(outputs)
    return np.array(outputs[0]), np.array(outputs[1])


def _simdgroups() -> int:
    return 8 if on_gpu() else 2


def _pad_empty(costs: mx.array) -> mx.array:
    return costs if costs.shape[1] else mx.full((len(costs), 1, costs.shape[2]), NEVER, mx.int32)


def _arrays(graph: WfstGraph) -> list[mx.array]:
    return [graph.first, graph.emitting, graph.labels, graph.targets, graph.weights]


class _Flat(NamedTuple):
    """A graph's arrays for the reference, which sums in 64 bits."""

    first: NDArray[np.int64]
    emitting: NDArray[np.int64]
    labels: NDArray[np.int64]
    targets: NDArray[np.int64]
    weights: NDArray[np.int64]

    def arcs_of(self, states: NDArray[np.int64], *, labelled: bool) -> tuple[NDArray[np.int64], ...]:
        """The arcs of states and the position of each one's state."""
        begin = self.first[states] + (0 if labelled else self.emitting[states])
        ends = self.first[states] + self.emitting[states] if labelled else self.first[states + 1]
        count = ends - begin
        owner = np.repeat(np.arange(len(states)), count)
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return begin[owner] + within, owner


def _flatten(graph: WfstGraph) -> _Flat:
    return _Flat(*(np.array(each, np.int64) for each in _arrays(graph)))


def wfst_tokens_reference(
    costs: mx.array, lengths: mx.array, graph: WfstGraph, limits: WfstLimits
) -> WfstTokens:
    """The same in numpy, utterance by utterance, tokens in the order of their states."""
    flat, rows = _flatten(graph), np.array(costs, np.int64)
    batch, frames = rows.shape[:2]
    first_token, base = np.zeros((batch, frames + 2), np.int32), np.zeros((batch, frames + 1), np.int32)
    report, kept = np.zeros((batch, 4), np.int32), []
    limit = min(limits.limit, graph.finals.size)
    for row, length in enumerate(np.array(lengths).tolist()):
        states, alphas = np.array([graph.start]), np.zeros(1, np.int64)
        tokens: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        for frame in range(length + 1):
            if frame == 0:
                targets, ways = states, alphas
            else:
                targets, ways = _expand_emitting(flat, states, alphas, rows[row, frame - 1], limits)
            states, alphas, moved, narrowed = _close_frame(flat, targets, ways, limit, limits.beam, graph)
            report[row, 2] += narrowed
            tokens.append((states, alphas))
            base[row, frame] = moved
            first_token[row, frame + 1 :] = first_token[row, frame] + len(states)
            if len(states) == 0:
                report[row, 0] = DEAD
                break
        kept.append(tokens)
        report[row, 1] = first_token[row, -1]
        report[row, 3] = max(len(each) for each, _ in tokens)
    room = max(1, int(report[:, 1].max(initial=1)))
    sides = np.zeros((2, batch, room), np.int32)
    for row, tokens in enumerate(kept):
        for side in range(2):
            joined = np.concatenate([each[side] for each in tokens])
            sides[side, row, : len(joined)] = joined
    return WfstTokens(*(mx.array(each) for each in (first_token, base, *sides, report)))


def _expand_emitting(
    flat: _Flat,
    states: NDArray[np.int64],
    alphas: NDArray[np.int64],
    frame_costs: NDArray[np.int64],
    limits: WfstLimits,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The targets of the active states' emitting arcs, and the cost of reaching them."""
    cutoff = alphas.min() + limits.beam
    if len(alphas) > limits.most_active:
        cutoff = min(cutoff, np.sort(alphas)[limits.most_active])
    active = alphas <= cutoff
    states, alphas = states[active], alphas[active]
    arcs, owner = flat.arcs_of(states, labelled=True)
    label_costs, targets = frame_costs[flat.labels[arcs] - 1], flat.targets[arcs]
    ways = alphas[owner] + flat.weights[arcs] + label_costs + (targets != states[owner]) * limits.penalty
    return targets[label_costs != NEVER], ways[label_costs != NEVER]


def _close_frame(
    flat: _Flat,
    targets: NDArray[np.int64],
    costs: NDArray[np.int64],
    limit: int,
    beam: int,
    graph: WfstGraph,
) -> tuple[NDArray[np.int64], NDArray[np.int64], int, int]:
    """The frame's states, their costs, what those are relative to, and how often the beam was halved."""
    if len(costs) == 0:
        return targets[:0], costs[:0], 0, 0
    best, reach, narrowed = int(costs.min()), beam, 0
    while True:
        total = np.full(graph.finals.size, _MOST, np.int64)
        fits = costs < best + reach
        np.minimum.at(total, targets[fits], costs[fits])
        relaxed = np.flatnonzero(total < _MOST)
        while len(relaxed):
            before = total.copy()
            arcs, owner = flat.arcs_of(relaxed, labelled=False)
            lowered = total[relaxed][owner] + flat.weights[arcs]
            fits = lowered < best + reach
            np.minimum.at(total, flat.targets[arcs][fits], lowered[fits])
            relaxed = np.flatnonzero(total < before)
        states = np.flatnonzero(total < _MOST)
        if len(states) <= limit:
            return states, total[states] - best, best, narrowed
        if reach == 1:
            return states[:0], total[:0], 0, narrowed
        reach, narrowed = reach // 2, narrowed + 1


def wfst_links_reference(
    costs: mx.array,
    lengths: mx.array,
    graph: WfstGraph,
    tokens: WfstTokens,
    reach: int,
    limits: WfstLimits,
    room: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The same in numpy: report [B, 4] (links, best, whether final, 0), links [B, room, 3] (frame, arc,
    behind)."""
    flat, rows, finals = _flatten(graph), np.array(costs, np.int64), np.array(graph.finals, np.int64)
    begins, base, states, alphas = (np.array(each, np.int64) for each in tokens[:4])
    report = np.zeros((len(rows), 4), np.int32)
    links = np.zeros((len(rows), room, 3), np.int32)
    for row, length in enumerate(np.array(lengths).tolist()):
        last = slice(begins[row, length], begins[row, length + 1])
        final_costs = finals[states[row, last]]
        reached = bool((final_costs != NEVER).any())
        final_costs = final_costs if reached else np.zeros_like(final_costs)
        ends = (alphas[row, last] + final_costs)[final_costs != NEVER]
        best = int(ends.min(initial=_MOST))
        report[row, 1:3] = best, reached
        if best == _MOST:
            continue
        kept: list[NDArray[np.int64]] = []
        betas = np.full(len(finals), _MOST, np.int64)
        for frame in range(length, -1, -1):
            part = slice(begins[row, frame], begins[row, frame + 1])
            current, ways = states[row, part], alphas[row, part]
            fresh = np.full(len(finals), _MOST, np.int64)
            if frame == length:
                stays = (final_costs != NEVER) & (ways + final_costs - best <= reach)
                fresh[current[stays]] = final_costs[stays]
            else:
                arcs, owner = flat.arcs_of(current, labelled=True)
                label_costs, targets = rows[row, frame][flat.labels[arcs] - 1], flat.targets[arcs]
                through = flat.weights[arcs] + label_costs + (targets != current[owner]) * limits.penalty
                through += betas[targets] - base[row, frame + 1]
                behind = ways[owner] + through - best
                stays = (label_costs != NEVER) & (betas[targets] < _MOST) & (behind <= reach)
                np.minimum.at(fresh, current[owner][stays], through[stays])
                kept.append(np.stack([np.full(stays.sum(), frame), arcs[stays], behind[stays]], 1))
            betas = fresh
            kept.append(_relax_epsilon(flat, current, ways, betas, best, reach, frame))
        joined = np.concatenate(kept)
        report[row, 0] = len(joined)
        links[row, : len(joined)] = joined[:room]
    return report, links


def _relax_epsilon(
    flat: _Flat,
    states: NDArray[np.int64],
    ways: NDArray[np.int64],
    betas: NDArray[np.int64],
    best: int,
    reach: int,
    frame: int,
) -> NDArray[np.int64]:
    """Lower the costs to the end along epsilon arcs; the links of these arcs that stay."""
    arcs, owner = flat.arcs_of(states, labelled=False)
    present = np.zeros(len(betas), bool)
    present[states] = True
    while True:
        before = betas.copy()
        to_end = betas[flat.targets[arcs]]
        through = flat.weights[arcs] + to_end
        behind = ways[owner] + through - best
        stays = present[flat.targets[arcs]] & (to_end < _MOST) & (behind <= reach)
        np.minimum.at(betas, states[owner][stays], through[stays])
        if (betas == before).all():
            return np.stack([np.full(stays.sum(), frame), arcs[stays], behind[stays]], 1)
