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


class _Ending(NamedTuple):
    """The alignments of each prefix that end in blank, or in its last token, [B, K]: their sum, the score of
    the best of them, and the node that says when that one has the last token, -1 for none."""

    sum: mx.array
    best: mx.array
    time: mx.array

    def take(self, slots: mx.array) -> "_Ending":
        """Those of `slots`, int32 [B, K]."""
        return _Ending(*(mx.take_along_axis(each, slots, axis=1) for each in self))

    def where(self, condition: mx.array, other: "_Ending") -> "_Ending":
        """These where `condition` holds, elsewhere the other ones."""
        return _Ending(*(mx.where(condition, own, its) for own, its in zip(self, other, strict=True)))

    def plus(self, log_probs: mx.array) -> "_Ending":
        return self._replace(sum=self.sum + log_probs, best=self.best + log_probs)


class _Slots(NamedTuple):
    """The state between two frames, [B, K]. blank, token: the alignments by how they end. before: the node of
    the time before `token.time`. fused: what graphs and `beta` added. last, node: the last token, and its
    node."""

    blank: _Ending
    token: _Ending
    before: mx.array
    fused: mx.array
    last: mx.array
    node: mx.array
    states: mx.array
    prefixes: Prefixes


class _Frame(NamedTuple):
    """How a frame continues each prefix. listed, labels: [B, R], the best labels. both: all alignments of a
    prefix. again: [B, K], the last token's log-probability, -inf where it is not listed. blank, token: the
    alignments of the prefix as it is; the time of `token` is the one before its own. extra: [B, K, R], what
    is added for a label. totals: [B, K, R + 1], of the prefix as it is and by each label."""

    listed: mx.array
    labels: mx.array
    both: _Ending
    again: mx.array
    blank: _Ending
    token: _Ending
    extra: mx.array
    totals: mx.array


class _Choice(NamedTuple):
    """What the next slots are made of, [B, K]. none: of nothing. slot: the slot continued. grew: by a label,
    the one in `column` of the listed ones."""

    none: mx.array
    slot: mx.array
    grew: mx.array
    column: mx.array

    @classmethod
    def of(cls, totals: mx.array) -> "_Choice":
        """The K best of `totals` [B, K, R + 1]."""
        batch, beam, width = totals.shape
        _, index = top_k(totals.reshape(batch, -1), beam)
        none = index < 0
        place = mx.where(none, 0, index % width)
        return cls(none, mx.where(none, 0, index // width), place > 0, mx.maximum(place - 1, 0))


class _Step(NamedTuple):
    """What one frame adds to a `PrefixTrace`."""

    labels: mx.array
    nodes: mx.array
    before: mx.array
    emissions: mx.array
    base: mx.array
    added: mx.array


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
    reference = _Reference(beta, graphs, fixed)
    state = reference.start(batch, beam)
    steps: list[_Step] = []
    inside = mx.arange(frames) < lengths[:, None]
    finite = mx.all(_is_finite(log_probs) | ~inside, axis=1)
    for frame in range(frames):
        if frame % _CHECK_EVERY == 0:
            mx.eval(state, steps[-_CHECK_EVERY:])
            longest = int(np.array(state.prefixes.lengths).max(initial=0))
            room = -(-(longest + _CHECK_EVERY + 1) // TOKEN_BLOCK) * TOKEN_BLOCK
            state = state._replace(prefixes=grow(state.prefixes, room))
        runs = ((frame < lengths) & finite)[:, None]
        state, step = reference.step(state, mx.where(runs, log_probs[:, frame], 0.0), runs, frame)
        steps.append(step)
    traced = _Step(*(mx.stack(list(column), axis=1) for column in zip(*steps, strict=True)))
    both = reference.both(state)
    return PrefixTrace(
        ends=mx.where(both.sum > -mx.inf, both.sum + state.fused, -mx.inf),
        **traced._asdict(),
        fused=state.fused,
        end_nodes=state.node,
        end_times=both.time,
        states=state.states,
        finite=finite,
    )


class _Reference:
    """The arithmetic of a frame."""

    def __init__(self, beta: float, graphs: Graphs | None, fixed: bool) -> None:
        self._beta, self._graphs, self._fixed = beta, graphs, fixed

    def start(self, batch: int, beam: int) -> _Slots:
        """One empty prefix an utterance."""
        first = mx.where(mx.arange(beam) == 0, 0.0, -mx.inf).astype(mx.float32)
        first = mx.broadcast_to(first, (batch, beam))
        none, never = mx.full((batch, beam), -1, mx.int32), mx.full((batch, beam), -mx.inf)
        starts = mx.zeros((batch, 1), mx.int32)
        if self._graphs is not None:
            starts = self._graphs.starts.astype(mx.int32)
        return _Slots(
            blank=_Ending(first, first, none),
            token=_Ending(never, never, none),
            before=none,
            fused=mx.zeros((batch, beam)),
            last=none,
            node=none,
            states=mx.repeat(starts[:, None], beam, axis=1),
            prefixes=empty_prefixes(batch, beam, TOKEN_BLOCK),
        )

    def step(self, old: _Slots, row: mx.array, runs: mx.array, frame: int) -> tuple[_Slots, _Step]:
        """One frame, row [B, W]; utterances that do not run (bool [B, 1]) wait."""
        batch, beam = old.last.shape
        new = self._continue(old, row)
        choice = _Choice.of(new.totals)
        slot, grew, column = choice.slot, choice.grew, choice.column

        def of_slot(values: mx.array) -> mx.array:
            return mx.take_along_axis(values, slot, axis=1)

        label = mx.where(grew, mx.take_along_axis(new.labels, column, axis=1), -1)
        listed = mx.take_along_axis(new.listed, column, axis=1)
        blank, ends_in_token = self._select(old, new, choice, label, listed)
        nodes = frame * beam + mx.broadcast_to(mx.arange(beam, dtype=mx.int32), (batch, beam))
        timed = (ends_in_token.best > -mx.inf) & runs
        token = ends_in_token._replace(time=mx.where(timed, nodes, -1))
        gained = mx.take_along_axis(new.extra.reshape(batch, -1), slot * new.listed.shape[1] + column, axis=1)
        fused = of_slot(old.fused) + mx.where(grew, gained, 0.0)
        base = self._log_add(blank.sum[:, 0], token.sum[:, 0])
        going = (base > -mx.inf) & runs[:, 0]
        base, added = mx.where(going, base, 0.0), mx.where(going, fused[:, 0], 0.0)
        parents, emitted = mx.where(runs, slot, mx.arange(beam)), mx.where(runs, label, -1)
        step = _Step(
            labels=emitted,
            nodes=mx.where(runs & grew, of_slot(old.node), -1),
            before=mx.where(timed, ends_in_token.time, -1),
            emissions=mx.where(timed, mx.where(grew, listed, of_slot(new.again)), 0.0),
            base=base,
            added=added,
        )

        def keep(fresh: mx.array, held: mx.array) -> mx.array:
            return mx.where(runs, fresh, held)

        return _Slots(
            blank=self._relative(blank, base).where(runs, old.blank),
            token=self._relative(token, base).where(runs, old.token),
            before=keep(ends_in_token.time, old.before),
            fused=keep(fused - added[:, None], old.fused),
            last=keep(mx.where(grew, label, of_slot(old.last)), old.last),
            node=keep(mx.where(grew, nodes, of_slot(old.node)), old.node),
            states=self._walk(old.states, parents, emitted),
            prefixes=extend(old.prefixes, parents, emitted),
        ), step

    def both(self, slots: _Slots) -> _Ending:
        """All alignments of each prefix."""
        blank, token = slots.blank, slots.token
        return _Ending(
            self._log_add(blank.sum, token.sum),
            mx.maximum(blank.best, token.best),
            mx.where(blank.best > token.best, blank.time, token.time),
        )

    def _continue(self, old: _Slots, row: mx.array) -> _Frame:
        beam, blank = old.last.shape[1], row.shape[1] - 1
        listed, labels = top_k(row, min(beam, row.shape[1]))
        rest = mx.max(mx.where(labels == blank, listed, -mx.inf), axis=1, keepdims=True)
        repeats = labels[:, None] == old.last[..., None]
        is_again = repeats & (labels[:, None] >= 0)
        again = mx.max(mx.where(is_again, listed[:, None], -mx.inf), axis=2)
        both = self.both(old)
        alive = both.sum > -mx.inf

        # is_parent[q, p]: the prefix of slot q is that of slot p and one token.
        counts, common = old.prefixes.lengths, old.prefixes.common
        is_parent = (counts[:, :, None] == counts[:, None] + 1) & (common == counts[:, None])
        is_parent = is_parent & alive[:, :, None] & alive[:, None]
        has, parent = mx.any(is_parent, axis=2), mx.argmax(is_parent, axis=2).astype(mx.int32)
        twice = mx.take_along_axis(old.last, parent, axis=1) == old.last
        grown = old.blank.take(parent).where(twice, both.take(parent))
        nothing = mx.full(again.shape, -mx.inf)
        grown = grown.where(has, _Ending(nothing, nothing, grown.time)).plus(again)
        stays = old.token.plus(again)
        # The slot that comes first sets a time; one behind changes it where it grows, not where it stays.
        takes_grown = has & mx.where(parent > mx.arange(beam), grown.best > stays.best, grown.best > -mx.inf)
        as_is = both.plus(rest)
        token = _Ending(
            self._log_add(stays.sum, grown.sum),
            mx.maximum(stays.best, grown.best),
            mx.where(takes_grown, grown.time, old.before),
        )
        kept = self._log_add(as_is.sum, token.sum) + old.fused

        longer = mx.where(repeats, old.blank.sum[..., None], both.sum[..., None]) + listed[:, None]
        taken = mx.any(is_parent[..., None] & (old.last[:, :, None, None] == labels[:, None, None]), axis=1)
        is_open = (labels[:, None] >= 0) & (labels[:, None] != blank) & ~taken
        extra = self._gains(old.states, labels) + self._beta
        longer = mx.where(is_open, longer + (old.fused[..., None] + extra), -mx.inf)
        totals = mx.concatenate([kept[..., None], longer], axis=2)
        return _Frame(listed, labels, both, again, as_is, token, extra, totals)

    def _select(
        self, old: _Slots, new: _Frame, choice: _Choice, label: mx.array, listed: mx.array
    ) -> tuple[_Ending, _Ending]:
        """The alignments of the chosen prefixes that end in blank, and in their last token; the time of these
        is the one before its own."""
        none, slot, grew, _ = choice
        repeated = grew & (label == mx.take_along_axis(old.last, slot, axis=1))
        grown = old.blank.take(slot).where(repeated, new.both.take(slot))
        token = grown.where(grew, new.token.take(slot)).plus(mx.where(grew, listed, 0.0))
        never, nowhere = mx.full(label.shape, -mx.inf), mx.full(label.shape, -1, mx.int32)
        blank = _Ending(never, never, nowhere).where(none | grew, new.blank.take(slot))
        blank = blank._replace(time=mx.where(blank.best > -mx.inf, blank.time, -1))
        return blank, _Ending(never, never, token.time).where(none, token)

    def _gains(self, states: mx.array, labels: mx.array) -> mx.array:
        """What graphs add to each slot for the listed labels [B, R], -1 for none: float32 [B, K, R]."""
        shape, graphs = (*states.shape[:2], labels.shape[1]), self._graphs
        if graphs is None:
            return mx.zeros(shape)
        total = None
        for index in range(states.shape[2]):
            which, alphas = graphs.which[:, index], graphs.alphas[:, index]
            total = label_scores(graphs.arcs, mx.contiguous(states[:, :, index]), which, alphas, total)
        assert total is not None
        columns = mx.broadcast_to(mx.clip(labels, 0, total.shape[-1] - 1)[:, None], shape)
        taken = mx.take_along_axis(total, columns, axis=2)
        return on_grid(taken) if self._fixed else taken

    def _walk(self, states: mx.array, parents: mx.array, emitted: mx.array) -> mx.array:
        graphs = self._graphs
        if graphs is None:
            return states
        each = [
            advance(graphs.arcs, mx.contiguous(states[:, :, index]), graphs.which[:, index], parents, emitted)
            for index in range(states.shape[2])
        ]
        return mx.stack(each, axis=2)

    def _relative(self, ending: _Ending, base: mx.array) -> _Ending:
        """The scores relative to `base` [B]."""

        def less(scores: mx.array) -> mx.array:
            moved = scores - base[:, None]
            return mx.where(scores > -mx.inf, mx.maximum(moved, LEAST), scores) if self._fixed else moved

        return ending._replace(sum=less(ending.sum), best=less(ending.best))

    def _log_add(self, a: mx.array, b: mx.array) -> mx.array:
        top, low = mx.maximum(a, b), mx.minimum(a, b)
        more = mx.log(1.0 + mx.exp(mx.where(low > -mx.inf, low - top, -mx.inf)))
        return mx.where(low > -mx.inf, top + (on_grid(more) if self._fixed else more), top)


def _is_finite(log_probs: mx.array) -> mx.array:
    """bool [B, T]: no label of the frame is NaN, and at least one is finite."""
    return mx.isfinite(mx.max(log_probs, axis=-1)) & ~mx.isnan(mx.sum(log_probs, axis=-1))
