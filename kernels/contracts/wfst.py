"""Contracts of the WFST search: its tokens, and the links of the lattice."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import pairwise

import mlx.core as mx
import numpy as np

from kernels.contracts.case import Case, lengths_of, normal
from kernels.search import wfst
from kernels.search.fixed_point import ONE
from kernels.search.wfst import NEVER, WfstGraph, WfstLimits, WfstTokens

FRAMES, LABELS, STATES = 9, 11, 60
REACH = 3 * ONE
LIMITS = WfstLimits(beam=6 * ONE, most_active=14, penalty=ONE // 8)


@cache
def graph_of(seed: int = 0) -> WfstGraph:
    """60 states with up to 9 arcs each, loops and arcs without a label among them, weights of few values, so
    that ways are equally good."""
    rng = np.random.default_rng(seed)
    first, emitting = [0], []
    rows: list[tuple[int, int, float]] = []
    for state in range(STATES):
        count = int(rng.integers(1, 7))
        labels = np.sort(rng.integers(1, LABELS + 1, count)).tolist()
        targets = np.where(rng.random(count) < 0.2, state, rng.integers(0, STATES, count)).tolist()
        rows += [
            (label, target, 0.25 * int(rng.integers(0, 9)))
            for label, target in zip(labels, targets, strict=True)
        ]
        emitting.append(count)
        # Epsilon arcs lead upwards only, so that there is no cycle.
        ups = int(rng.integers(0, 3)) if state + 1 < STATES else 0
        rows += [
            (0, int(rng.integers(state + 1, STATES)), 0.25 * int(rng.integers(-2, 5))) for _ in range(ups)
        ]
        first.append(len(rows))
    finals = np.where(rng.random(STATES) < 0.2, (rng.random(STATES) * ONE).astype(np.int32), NEVER)
    columns = np.array(rows)
    arrays = (np.array(first), np.array(emitting), *columns[:, :2].T, columns[:, 2] * ONE, finals)
    begins, many, heard, leads, weights, ends = (mx.array(each.astype(np.int32)) for each in arrays)
    return WfstGraph(begins, many, heard, leads, weights, ends, start=3, depth=STATES)


def _make_tokens(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    logits = normal(batch, FRAMES, LABELS, dtype=dtype, scale=2)
    log_probs = mx.round(4 * (logits - mx.logsumexp(logits, axis=-1, keepdims=True))) / 4
    never = normal(batch, FRAMES, LABELS, seed=1) > 1.5
    return [mx.where(never, -mx.inf, log_probs), lengths_of(batch, FRAMES)]


def tokens_table(tokens: WfstTokens) -> mx.array:
    """All of an utterance in a row, a frame's tokens in the order of their states."""
    begins, base, states, costs, report = (np.array(each) for each in tokens)
    room = (FRAMES + 1) * STATES
    sides = np.full((len(begins), 2 * room), -1, np.int32)
    for row, bounds in enumerate(begins.tolist()):
        for begin, end in pairwise(bounds):
            order = begin + np.argsort(states[row, begin:end])
            sides[row, begin:end] = states[row, order]
            sides[row, room + begin : room + end] = costs[row, order]
    return mx.array(np.concatenate([begins, base, report, sides], axis=1)).astype(mx.float32)


def _tokens(call: Callable[..., WfstTokens], limits: WfstLimits) -> Callable[..., mx.array]:
    return lambda log_probs, lengths: tokens_table(
        call(wfst.grid_costs(log_probs), lengths, graph_of(), limits)
    )


def _make_links(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    """The log-probabilities, and the reference's tokens for them."""
    log_probs, lengths = _make_tokens(batch, dtype)
    tokens = wfst.wfst_tokens_reference(wfst.grid_costs(log_probs), lengths, graph_of(), LIMITS)
    room = (FRAMES + 1) * STATES
    states, ways = (mx.pad(each, [(0, 0), (0, room - each.shape[1])]) for each in tokens[2:4])
    # As many states a frame for every batch, so that one utterance alone is laid out like many.
    report = mx.concatenate([tokens.report[:, :3], mx.full((batch, 1), STATES, mx.int32)], axis=1)
    return [log_probs, lengths, tokens.first_token, tokens.base, states, ways, report]


def _links(*inputs: mx.array) -> mx.array:
    log_probs, lengths, *rest = inputs
    costs = wfst.grid_costs(log_probs)
    lattices = wfst.wfst_links(costs, lengths, graph_of(), WfstTokens(*rest), REACH, LIMITS)
    table = np.full((len(lattices), 4 + 3 * (FRAMES + 1) * wfst.LINKS_PER_FRAME), -1, np.int32)
    for row, links in zip(table, lattices, strict=True):
        row[:4] = len(links.arcs), links.best, links.final, 0
        packed = np.stack([links.frames, links.arcs, links.behind], 1).reshape(-1)
        row[4 : 4 + len(packed)] = packed
    return mx.array(table).astype(mx.float32)


def wfst_cases() -> Iterator[Case]:
    """The cases of the WFST search."""
    tight = LIMITS._replace(beam=40 * ONE, most_active=100, limit=17)
    for name, limits in (("wfst-search", LIMITS), ("wfst-search-narrowed", tight)):
        make_case = partial(_tokens, limits=limits)
        yield Case(name, _make_tokens, make_case(wfst.wfst_tokens), make_case(wfst.wfst_tokens_reference))
    yield Case("wfst-lattice", _make_links, _links, _links)
