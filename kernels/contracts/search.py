"""Contracts of the beams' kernels: a step's expansion and settling, graphs, the CTC beam."""

from collections.abc import Callable, Iterator
from functools import partial

import mlx.core as mx
import numpy as np

from kernels.contracts.case import Case, lengths_of, normal
from kernels.search import expand, ngram
from kernels.search import recombine as search_recombine
from kernels.search.ctc_beam import CtcBacktrace, ctc_beam, ctc_beam_reference
from kernels.search.ctc_prefix import Graphs, PrefixTrace, ctc_prefix_beam, ctc_prefix_reference
from kernels.search.expand import FINISHED, FORCED, RUNS, Bonus, Expansion, expand_reference
from kernels.search.fixed_point import ONE, on_grid
from kernels.search.next_rows import NextRows, next_rows, next_rows_reference
from kernels.search.recombine import Beam, Field, Limits, empty_beam
from kernels.search.recombine import recombine_reference as recombine_reference

BEAM, WIDTH, DURATIONS = 4, 70, 5


def _make_expand(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    logits = normal(batch, BEAM, WIDTH + DURATIONS, dtype=dtype, scale=3)
    scores = normal(batch, BEAM, seed=1) - mx.arange(BEAM) * 2.0
    status = mx.where(normal(batch, BEAM, seed=2) > 1.0, FINISHED, RUNS)
    status = mx.where(normal(batch, BEAM, seed=3) > 1.0, FORCED, status)
    return [logits, scores, status.astype(mx.int32), normal(batch, BEAM, WIDTH - 1), normal(batch, seed=4)]


def _table(outputs: tuple[mx.array, ...]) -> mx.array:
    """All outputs side by side; a dead slot's score as a number that can be subtracted."""
    columns = []
    for each in outputs:
        array = each.astype(mx.float32)
        first = array.ndim > 2 and array.shape[0] in (3, len(Field))
        by_row = array.swapaxes(0, 1) if first else array
        columns.append(mx.maximum(by_row.reshape(by_row.shape[0], -1), -1e9))
    return mx.concatenate(columns, axis=1)


def _expand(call: Callable[..., Expansion], mode: str) -> Callable[..., mx.array]:
    durations = mx.array([0, 1, 2, 3, 4], mx.int32)

    def run(
        logits: mx.array, scores: mx.array, status: mx.array, gains: mx.array, alphas: mx.array
    ) -> mx.array:
        bonus = None
        if mode in ("late", "early"):
            bonus = Bonus(gains, mx.abs(alphas), weighted=True, early=mode == "early")
        if mode == "rnnt":
            return _table(call(logits[..., :WIDTH], None, scores, status, bonus))
        if mode == "fixed":
            return _table(call(logits, durations, on_grid(scores), status, bonus, fixed=True))
        return _table(call(logits, durations, scores, status, bonus))

    return run


SETTLED = Limits(mx.array([9]), mx.array([9, 2], mx.int32), blank=2, timed=True)


def _make_settle(batch: int, _: mx.Dtype) -> list[mx.array]:
    """An expansion and a beam after some steps, the utterance first in every array."""
    gains, choice, *rest = [*recombine_inputs(batch, 4), lengths_of(batch, 9)]
    finite, scores, slots, *others = rest
    return [_swap_rows(gains), _swap_rows(choice), finite, scores, _swap_rows(slots), *others]


def _swap_rows(x: mx.array) -> mx.array:
    return mx.contiguous(x.swapaxes(0, 1))


def recombine_inputs(batch: int, slots: int, *, timed: bool = True, steps: int = 3) -> list[mx.array]:
    """A random expansion over two labels, and the beam that others led to by the reference: their arrays."""
    limits = SETTLED._replace(lengths=lengths_of(batch, 9), timed=timed)
    beam = empty_beam(batch, slots, 12, limits)
    rng = np.random.default_rng((batch, slots, steps))
    shape = (batch, slots)
    for step in range(steps + 1):
        parents = rng.integers(0, 1 if step == 0 else slots, shape)
        labels, waits = rng.integers(0, 3, shape), rng.integers(0, 2, shape)
        over = np.take_along_axis(np.array(beam.slots[Field.STATUS]) == FINISHED, parents, axis=1)
        labels, waits = np.where(over, -1, labels), np.where(over, 0, np.maximum(waits, labels == 2))
        scores = np.round(rng.normal(-4, 2, shape) * 2) / 2
        dead = rng.random(shape) < 0.15
        grown = Expansion(
            mx.array(np.stack([np.where(dead, -np.inf, scores), scores, scores]).astype(np.float32)),
            mx.array(np.stack([np.where(dead, -1, parents), np.where(dead, -1, labels), waits]), mx.int32),
            mx.array(rng.random(batch) < 0.9),
        )
        if step < steps:
            beam = recombine_reference(grown, beam, limits)
    return [*grown, *beam]


def _settle(call: Callable[..., Beam]) -> Callable[..., mx.array]:
    def run(gains: mx.array, choice: mx.array, finite: mx.array, *rest: mx.array) -> mx.array:
        scores, slots, *others, lengths = rest
        grown = Expansion(_swap_rows(gains), _swap_rows(choice), finite)
        settled = call(grown, Beam(scores, _swap_rows(slots), *others), SETTLED._replace(lengths=lengths))
        # The encoder's rows are those of the batch: the rows within an utterance are its own.
        rows = (mx.arange(len(scores)) * 9)[:, None] * (mx.arange(len(Field)) == Field.ROW)[:, None, None]
        base = settled.base.astype(mx.float32) / ONE
        return _table(settled._replace(slots=settled.slots - rows, base=base))

    return run


def arcs_of(seed: int = 0) -> ngram.Arcs:
    """Two graphs of 5 states over 70 labels side by side, with fallbacks two deep; a state without arcs."""
    rng = np.random.default_rng(seed)
    count = np.array([0, 40, 3, 0, 1] * 2, np.int32)
    first = (np.cumsum(count) - count).astype(np.int32)
    labels = np.concatenate([np.sort(rng.choice(70, n, replace=False)) for n in count])
    targets = np.concatenate([rng.integers(0, 5, n) + 5 * (s >= 5) for s, n in enumerate(count)])
    ties = np.array([-1, 0, 1, 0, 2, -1, 5, 6, 5, 7], np.int32)
    root_targets = rng.integers(0, 5, (2, 70)) + np.array([[0], [5]])
    return ngram.Arcs(
        first=mx.array(first),
        arc_counts=mx.array(count),
        fallback=mx.array(ties),
        penalty=mx.array(np.where(ties < 0, 0, rng.normal(size=10)).astype(np.float32)),
        labels=mx.array(labels.astype(np.int32)),
        weights=mx.array(rng.normal(size=len(labels)).astype(np.float32)),
        targets=mx.array(targets.astype(np.int32)),
        roots=mx.array(rng.normal(size=(2, 70)).astype(np.float32)),
        root_targets=mx.array(root_targets.astype(np.int32)),
        depth=4,
        width=40,
    )


def _make_arcs(batch: int, _: mx.Dtype) -> list[mx.array]:
    which = np.arange(batch) % 2
    rng = np.random.default_rng(batch)
    states = rng.integers(0, 5, (batch, 3)) + 5 * which[:, None]
    parents, emitted = rng.integers(-1, 3, (batch, 3)), rng.integers(-1, 70, (batch, 3))
    integers = [mx.array(each.astype(np.int32)) for each in (states, which, parents, emitted)]
    return [normal(batch, 3, 70), *integers, normal(batch)]


def _label_scores(call: Callable[..., mx.array], adds: bool) -> Callable[..., mx.array]:
    return lambda before, states, which, _p, _e, alphas: call(
        arcs_of(), states, which, alphas, before if adds else None
    )


def _advance(call: Callable[..., mx.array]) -> Callable[..., mx.array]:
    return lambda _b, states, which, parents, emitted, _a: call(
        arcs_of(), states, which, parents, emitted
    ).astype(mx.float32)


def _make_ctc(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    logits = normal(batch, 12, 39, dtype=dtype, scale=2)
    return [logits - mx.logsumexp(logits, axis=-1, keepdims=True), lengths_of(batch, 12)]


def _ctc(call: Callable[..., CtcBacktrace]) -> Callable[..., mx.array]:
    """All outputs side by side."""

    def run(log_probs: mx.array, lengths: mx.array) -> mx.array:
        backtrace = call(log_probs, lengths, 5, 0.25, 9.0)
        columns = [each.astype(mx.float32).reshape(len(lengths), -1) for each in backtrace]
        return mx.maximum(mx.concatenate(columns, axis=1), -1e9)

    return run


def _make_prefix(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    """Log-probabilities of 70 labels and blank; of each utterance two graphs, where they begin, their
    weights."""
    logits = normal(batch, 12, 71, dtype=dtype, scale=2)
    which = np.stack([np.arange(batch) % 2, np.arange(batch) // 2 % 2], axis=1)
    starts = 5 * which + np.random.default_rng(batch).integers(0, 5, 2)
    integers = [mx.array(each.astype(np.int32)) for each in (which, starts)]
    log_probs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    return [log_probs, lengths_of(batch, 12), *integers, normal(batch, 2, scale=0.5)]


def _prefix(call: Callable[..., PrefixTrace], *, fused: bool, fixed: bool) -> Callable[..., mx.array]:
    """All outputs side by side."""

    def run(
        log_probs: mx.array, lengths: mx.array, which: mx.array, starts: mx.array, alphas: mx.array
    ) -> mx.array:
        graphs = Graphs(arcs_of(), which, starts, alphas) if fused else None
        trace = call(log_probs, lengths, 6, 0.25, graphs, fixed=fixed)
        columns = [each.astype(mx.float32).reshape(len(lengths), -1) for each in trace]
        return mx.maximum(mx.concatenate(columns, axis=1), -1e9)

    return run


def _grid(call: Callable[..., Beam]) -> Callable[..., Beam]:
    return lambda grown, beam, limits: call(grown, beam, limits._replace(fixed=True))


def _next_rows(call: Callable[..., NextRows]) -> Callable[..., mx.array]:
    """For each slot the row it continues and the label it reads, and the row and slot of its product and its
    joint, numbered within its utterance."""

    def run(scores: mx.array, slots: mx.array) -> mx.array:
        swapped = call(_swap_rows(slots), scores)
        first = mx.repeat(mx.arange(len(scores)) * scores.shape[1], scores.shape[1])
        columns = [swapped.running - mx.sum(swapped.joined[0] >= 0) + 0 * first]  # zeros
        for rows, products in (swapped.steps.first, swapped.steps.upper):
            of = mx.where(rows[1] >= 0, mx.take(products, rows[2], axis=1) - first, 0)
            columns += [rows[0] - first, rows[1], of[0], of[1]]
        stepped, source = swapped.steps.kept[0], swapped.steps.kept[1]
        columns += [mx.where(stepped >= 0, stepped - first, -1), source - first]
        columns += [swapped.joined[0], swapped.joined[1] - first]
        return mx.stack(columns, axis=1).astype(mx.float32).reshape(len(scores), -1)

    return run


def _make_next(batch: int, _: mx.Dtype) -> list[mx.array]:
    """A beam after some steps, its frames numbered within its utterance."""
    scores, slots = recombine_inputs(batch, 4)[3:5]
    rows = (mx.arange(batch) * 9)[:, None] * (mx.arange(len(Field)) == Field.ROW)[:, None, None]
    return [scores, _swap_rows((slots - rows).astype(mx.int32))]


def search_cases() -> Iterator[Case]:
    """The cases of the beams' steps."""
    for mode in ("tdt", "rnnt", "late", "early"):
        yield Case(
            f"expand-{mode}", _make_expand, _expand(expand.expand, mode), _expand(expand_reference, mode)
        )
    step = 1.01 / ONE  # two ways of computing one score may round to neighbouring grid points
    fixed = partial(_expand, mode="fixed")
    yield Case("expand-fixed", _make_expand, fixed(expand.expand), fixed(expand_reference), step)
    yield Case("ctc-beam", _make_ctc, _ctc(ctc_beam), _ctc(ctc_beam_reference))
    runs = partial(ctc_beam, fixed=True), partial(ctc_beam_reference, fixed=True)
    yield Case("ctc-beam-fixed", _make_ctc, _ctc(runs[0]), _ctc(runs[1]))
    for fused, grid in ((False, False), (True, False), (True, True)):
        make_case = partial(_prefix, fused=fused, fixed=grid)
        name = f"ctc-prefix{'-graphs' if fused else ''}{'-fixed' if grid else ''}"
        slack = 12 * step if grid else 0.0
        yield Case(name, _make_prefix, make_case(ctc_prefix_beam), make_case(ctc_prefix_reference), slack)
    yield Case("recombine", _make_settle, _settle(search_recombine.recombine), _settle(recombine_reference))
    yield Case(
        "settle-fixed",
        _make_settle,
        _settle(_grid(search_recombine.recombine)),
        _settle(_grid(recombine_reference)),
        2 * step,  # of a score, and of the best that it is behind
    )
    yield Case("next-rows", _make_next, _next_rows(next_rows), _next_rows(next_rows_reference))
    for adds in (False, True):
        name = f"look-{'adds' if adds else 'first'}"
        yield Case(
            name,
            _make_arcs,
            _label_scores(ngram.label_scores, adds),
            _label_scores(ngram.label_scores_reference, adds),
        )
    yield Case("walk", _make_arcs, _advance(ngram.advance), _advance(ngram.advance_reference))
