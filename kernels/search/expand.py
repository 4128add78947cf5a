"""One expansion of a transducer beam: from joint logits to the best K continuations of each utterance.

Steps 1 to 4 of NeMo's `malsd_batch` (RNNT and TDT), with and without fusion. `expand_reference` is the
plain-MLX form; `expand` has the same contract and runs a kernel where one is available. This module knows
logits, scores and the rules for blank. It does not know emitted tokens, frames or network states, nor where a
bonus comes from.

The kernel reads the logits once: it sorts neither labels nor candidates and uses one threadgroup per
utterance. It sums under the logarithm in another order, so its scores agree with the reference within 2e-6
relative, and candidates closer than that may swap ranks; equal logits never do. On the grid of
`kernels.search.fixed_point`, scores may differ by one step. An utterance's results are bit-identical in any
batch, and a NaN in its rows affects no other utterance.
"""

from functools import cache
from typing import NamedTuple

import mlx.core as mx

from kernels.runtime.device import launch
from kernels.runtime.source import read_kernel
from kernels.search.fixed_point import LEAST, on_grid
from kernels.search.topk import top_k

RUNS, FINISHED, FORCED = 0, 1, 2  # a hypothesis's status
MOST_BLANK = 0.99  # blank's probability is capped here before log(1 - p), as in NeMo, for bfloat16


class Bonus(NamedTuple):
    """What fusion adds to the labels of [B, K] hypotheses.

    gains: float32 [B, K, V]. alphas: float32 [B], the sum of the weights, read where `weighted`: then blank's
    log-probability is multiplied by 1 + alpha, and each label gains alpha times the log-probability that the
    symbol is not blank. early: the K best labels of each hypothesis are chosen without the bonus, which is
    added afterwards.
    """

    gains: mx.array
    alphas: mx.array
    weighted: bool = False
    early: bool = False


class Expansion(NamedTuple):
    """The best K continuations of each utterance, best first.

    gains: float32 [3, B, K], the score (-inf in a dead slot), the label's log-probability among labels and
    blank, and what fusion gave it. choice: int32 [3, B, K], the slot continued (-1 in a dead slot), the label
    (or blank; -1 for a finished hypothesis and in a dead slot), and the frames to advance.
    finite: bool [B], False when a live, unfinished hypothesis of the utterance had no finite normaliser.
    """

    gains: mx.array
    choice: mx.array
    finite: mx.array


def expand_reference(
    logits: mx.array,
    durations: mx.array | None,
    scores: mx.array,
    status: mx.array,
    bonus: Bonus | None = None,
    *,
    fixed: bool = False,
) -> Expansion:
    """Continue each of [B, K] hypotheses by each label (and duration), and keep the K best of each utterance.

    logits: [B, K, V + 1 + D], labels, blank, then the durations int32 [D] in frames; without durations D is 0
    (RNNT), a blank advances one frame and a label none. scores: float32 [B, K], -inf = dead slot. status:
    int32 [B, K]: RUNS, FINISHED (carried on unchanged) or FORCED (only blank, with the best duration).

    A continuation scores its hypothesis's score plus (label + duration log-probability), the label's with its
    bonus; blank of duration 0 advances 1 and keeps the score of duration 0. A forced blank has the bonus that
    blank has, but none where the bonus comes `early`, as in NeMo. Order: score descending, then slot, then
    rank of the label in its hypothesis (equal ones: lowest label first), then duration. K may exceed V + 1.
    `fixed` takes scores that are differences on the grid of `kernels.search.fixed_point`, rounds whatever is
    added to them to that grid, and keeps the sums within its range.
    """
    batch, beam, width = logits.shape
    counted = 0 if durations is None else len(durations)
    width -= counted
    ranks, blank = min(beam, width), width - 1
    logits = logits.astype(mx.float32)
    finished, forced = status == FINISHED, status == FORCED
    # A hypothesis with one continuation keeps one label and one duration; the rest of its table is -inf.
    bound = (finished | forced)[..., None]
    norm = mx.logsumexp(logits[..., :width], axis=-1, keepdims=True)
    labels, acoustic, fused = _labels(logits[..., :width] - norm, ranks, bonus)
    only_lp, only_fused = _only_blank(logits[..., blank : blank + 1] - norm, bonus)
    rest = mx.where(mx.arange(ranks) == 0, 0.0, -mx.inf)
    labels = mx.where(bound, mx.where(finished, -1, blank)[..., None], labels)
    acoustic = mx.where(bound, mx.where(finished[..., None], 0.0, only_lp) + rest, acoustic)
    fused = mx.where(bound, mx.where(finished[..., None], 0.0, only_fused), fused)
    table, choices = acoustic + fused, 1
    if fixed:
        table = on_grid(table)
    finite = mx.isfinite(norm[..., 0])
    if durations is None:
        table = scores[..., None] + table
    else:
        duration_lp, duration_norm = _durations(logits[..., width:], finished, bound)
        if fixed:
            duration_lp = on_grid(duration_lp)
        table = scores[..., None, None] + (table[..., None] + duration_lp[:, :, None, :])
        choices = counted
        finite = finite & mx.isfinite(duration_norm)

    if fixed:
        table = mx.where(table > -mx.inf, mx.maximum(table, LEAST), table)
    kept, index = top_k(table.reshape(batch, -1), beam)
    alive, at = index >= 0, mx.maximum(index, 0)
    place = at // choices

    def pick(values: mx.array) -> mx.array:
        return mx.take_along_axis(values.reshape(batch, -1), place, axis=1)

    label = mx.where(alive, pick(labels), -1)
    step = (label == blank).astype(mx.int32)
    if durations is not None:
        step = mx.where(label < 0, 0, mx.maximum(mx.take(durations, at % choices), step))
    emits = alive & (label >= 0)
    return Expansion(
        choice=mx.stack([mx.where(alive, place // ranks, -1), label, step]).astype(mx.int32),
        gains=mx.stack(
            [kept, mx.where(emits, pick(acoustic), 0.0), mx.where(emits, pick(fused), 0.0)]
        ).astype(mx.float32),
        finite=mx.all(finite | finished | (scores == -mx.inf), axis=-1),
    )


def _labels(log_probs: mx.array, ranks: int, bonus: Bonus | None) -> tuple[mx.array, mx.array, mx.array]:
    """The best labels [B, K, R], their log-probabilities and what fusion gives them."""
    if bonus is None:
        best, labels = top_k(log_probs, ranks)
        return labels, best, mx.zeros_like(best)
    fused = _fusion_gains(log_probs, bonus)
    ranked = log_probs if bonus.early else log_probs + fused
    best, labels = top_k(ranked, ranks)
    at = mx.maximum(labels, 0)
    acoustic = mx.where(labels < 0, -mx.inf, mx.take_along_axis(log_probs, at, axis=-1))
    return labels, acoustic, mx.take_along_axis(fused, at, axis=-1)


def _fusion_gains(log_probs: mx.array, bonus: Bonus) -> mx.array:
    """What fusion gives each label and blank, [B, K, V + 1]."""
    blank = log_probs[..., -1:]
    fused = mx.concatenate([bonus.gains, mx.zeros_like(blank)], axis=-1)
    if not bonus.weighted:
        return fused
    alpha = bonus.alphas[:, None, None]
    some_label = alpha * mx.log(1 - mx.minimum(mx.exp(blank), MOST_BLANK))
    is_blank = mx.arange(log_probs.shape[-1]) == log_probs.shape[-1] - 1
    return fused + mx.where(is_blank, alpha * blank, some_label)


def _only_blank(log_prob: mx.array, bonus: Bonus | None) -> tuple[mx.array, mx.array]:
    """A forced blank's log-probability and what fusion gives it, [B, K, 1]."""
    if bonus is None or bonus.early or not bonus.weighted:
        return log_prob, mx.zeros_like(log_prob)
    return log_prob, bonus.alphas[:, None, None] * log_prob


def _durations(logits: mx.array, finished: mx.array, bound: mx.array) -> tuple[mx.array, mx.array]:
    """The log-probabilities of the durations [B, K, D] and their normaliser [B, K].

    A bound hypothesis keeps only its best duration, at 0.0 if the hypothesis is finished.
    """
    norm = mx.logsumexp(logits, axis=-1)
    best = mx.argmax(logits, axis=-1, keepdims=True)
    keeps = mx.arange(logits.shape[-1]) == best
    log_probs = mx.where(finished[..., None], 0.0, logits - norm[..., None])
    return mx.where(bound & ~keeps, -mx.inf, log_probs), norm


EXPAND = read_kernel("search/expand", "logits bonus alphas frames scores status", "o_gains o_choice o_sound")

# A threadgroup's memory on an Apple GPU (32 KiB), less what else the kernel keeps there.
_CANDIDATE_BYTES = 31 * 1024
_MOST_SIMDGROUPS = 16


@cache  # on a device, each would be a launch
def _make_unused_input(dtype: mx.Dtype, size: int) -> mx.array:
    """Stands in for an input that a kernel does not read."""
    zeros = mx.zeros((size,), dtype)
    mx.eval(zeros)
    return zeros


def expand(
    logits: mx.array,
    durations: mx.array | None,
    scores: mx.array,
    status: mx.array,
    bonus: Bonus | None = None,
    *,
    fixed: bool = False,
) -> Expansion:
    """Continue [B, K] hypotheses and keep the best K of each utterance: as `expand_reference`.

    Beams whose candidates outgrow a threadgroup's memory (K = 32 with more than 6 durations) take the
    reference.
    """
    batch, beam, width = logits.shape
    frames = _make_unused_input(mx.int32, 1) if durations is None else durations.astype(mx.int32)
    choices = len(frames)
    ranks = min(beam, width if durations is None else width - choices)
    outputs = None
    if 4 * beam * ranks * (choices + 1) + 20 * beam <= _CANDIDATE_BYTES:
        gains = _make_unused_input(mx.float32, 8) if bonus is None else bonus.gains
        alphas = _make_unused_input(mx.float32, 8) if bonus is None else bonus.alphas
        outputs = launch(
            EXPAND,
            [logits, gains, alphas, frames, scores, status],
            [((3, batch, beam), mx.float32), ((3, batch, beam), mx.int32), ((batch,), mx.bool_)],
            groups=batch,
            simdgroups=min(beam, _MOST_SIMDGROUPS),
            template=(
                ("K", beam),
                ("R", ranks),
                ("D", choices),
                ("TIMED", durations is not None),
                ("FUSED", bonus is not None),
                ("WEIGHTED", bonus is not None and bonus.weighted),
                ("EARLY", bonus is not None and bonus.early),
                ("FIXED", fixed),
            ),
        )
    if outputs is None:
        return expand_reference(logits, durations, scores, status, bonus, fixed=fixed)
    return Expansion(*outputs)
