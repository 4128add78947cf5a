"""The CTC prefix beam against its definition: all alignments of a sentence, and WeNet's algorithm."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np
import pytest

from kernels.runtime import use_backend
from kernels.search import ctc_prefix_beam, ctc_prefix_reference
from ops.testbed.kernel_cases import TESTED
from spool.domain import Hypothesis
from worker.decode import Fusion, ctc_prefix_search, make_fusion
from worker.models import DecodeRequest, SearchOptions, Tokenizer

LOW = -math.inf
Gain = Callable[[tuple[int, ...], int], float]
Listed = tuple[tuple[int, ...], float, list[int]]


@dataclass
class Entry:
    """One prefix in one frame: sums and best alignments that end in blank and in its last token."""

    s: float = LOW
    ns: float = LOW
    v_s: float = LOW
    v_ns: float = LOW
    cur: float = LOW
    times_s: list[int] = field(default_factory=list)
    times_ns: list[int] = field(default_factory=list)
    fused: float = 0.0

    @property
    def score(self) -> float:
        return float(np.logaddexp(self.s, self.ns))

    @property
    def best(self) -> float:
        return max(self.v_s, self.v_ns)

    @property
    def times(self) -> list[int]:
        return self.times_s if self.v_s > self.v_ns else self.times_ns


def prefix_beam(
    log_probs: np.ndarray, beam: int, gain: Gain
) -> list[tuple[tuple[int, ...], float, list[int]]]:
    """WeNet's search restated; blank is the last label."""
    blank = log_probs.shape[1] - 1
    kept: list[tuple[tuple[int, ...], Entry]] = [((), Entry(s=0.0, v_s=0.0))]
    for t, row in enumerate(log_probs.astype(np.float64)):
        fresh: dict[tuple[int, ...], Entry] = {}

        def of(prefix: tuple[int, ...], fused: float, fresh: dict[tuple[int, ...], Entry] = fresh) -> Entry:
            return fresh.setdefault(prefix, Entry(fused=fused))

        for label in np.argsort(-row, kind="stable")[:beam].tolist():
            x = float(row[label])
            for prefix, old in kept:
                if label == blank:
                    new = of(prefix, old.fused)
                    new.s = float(np.logaddexp(new.s, old.score + x))
                    new.v_s, new.times_s = old.best + x, old.times
                    continue
                longer_fused = old.fused + gain(prefix, label)
                if prefix and prefix[-1] == label:
                    new = of(prefix, old.fused)
                    new.ns = float(np.logaddexp(new.ns, old.ns + x))
                    if new.v_ns < old.v_ns + x:
                        new.v_ns = old.v_ns + x
                        if new.cur < x:
                            new.cur, new.times_ns = x, [*old.times_ns[:-1], t]
                    total, most, times = old.s, old.v_s, old.times_s
                else:
                    total, most, times = old.score, old.best, old.times
                new = of((*prefix, label), longer_fused)
                new.ns = float(np.logaddexp(new.ns, total + x))
                if new.v_ns < most + x:
                    new.v_ns, new.cur, new.times_ns = most + x, x, [*times, t]
        ranked = sorted(fresh.items(), key=lambda item: -(item[1].score + item[1].fused))
        kept = [item for item in ranked[:beam] if item[1].score > LOW]
    return [(prefix, entry.score + entry.fused, entry.times) for prefix, entry in kept]


def log_probs_of(seed: int, width: int, frames: int, batch: int = 4, blank: float = 1.0) -> np.ndarray:
    logits = 2.0 * np.random.default_rng(seed).normal(size=(batch, frames, width))
    logits[..., -1] += blank
    return (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(np.float32)


def assert_lists(found: Sequence[Hypothesis], expected: Sequence[Listed]) -> None:
    assert [each.tokens for each in found] == [tokens for tokens, *_ in expected]
    assert [list(each.times) for each in found] == [times for *_, times in expected]
    assert [each.score for each in found] == pytest.approx([score for _, score, _ in expected], abs=1e-4)


@pytest.mark.parametrize("backend", ["reference", TESTED])
@pytest.mark.parametrize(("seed", "width", "beam"), [(0, 3, 4), (1, 4, 3), (2, 9, 5), (3, 40, 8), (4, 5, 1)])
def test_lists_are_those_of_the_definition(backend: str, seed: int, width: int, beam: int) -> None:
    rows, lengths = log_probs_of(seed, width, 30), np.array([30, 0, 1, 17], np.int32)
    for beta in (0.0, 0.75):
        with use_backend(backend):
            found = ctc_prefix_search(mx.array(rows), lengths, width - 1, beam, beta=beta)
        for row, length in enumerate(lengths.tolist()):
            assert_lists(found[row], prefix_beam(rows[row, :length], beam, lambda *_, beta=beta: beta))


def test_a_beam_that_keeps_everything_adds_up_every_alignment() -> None:
    rows = log_probs_of(7, 3, 5, batch=1)[0]
    sums: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(3), repeat=5):
        tokens = tuple(label for label, _ in itertools.groupby(path) if label != 2)
        value = float(sum(rows[t, label] for t, label in enumerate(path)))
        sums[tokens] = float(np.logaddexp(sums.get(tokens, LOW), value))
    with use_backend(TESTED):
        (found,) = ctc_prefix_search(mx.array(rows)[None], np.array([5], np.int32), 2, 36)
    assert {each.tokens for each in found} == set(sorted(sums, key=lambda each: -sums[each])[: len(found)])
    for each in found[:12]:
        assert each.score == pytest.approx(sums[each.tokens], abs=1e-5)


PIECES = ("▁a", "▁b", "▁c", "d", "e")
PHRASES = ("a b", "c", "b c")


def fusion_of(requests: Sequence[DecodeRequest]) -> Fusion:
    made = make_fusion(Tokenizer(PIECES), SearchOptions(), requests)
    assert made is not None
    return made


@pytest.mark.long
def test_phrases_count_as_the_graphs_say_and_end_with_the_utterance() -> None:
    rows, lengths = log_probs_of(5, 6, 20, batch=3), np.array([20, 11, 0], np.int32)
    requests = [
        DecodeRequest(phrases=PHRASES, boost=1.5),
        DecodeRequest(phrases=("c a",), boost=0.5),
        DecodeRequest(phrases=("a",), boost=0.7),
    ]
    fusion = fusion_of(requests)
    for backend in ("reference", TESTED):
        with use_backend(backend):
            found = ctc_prefix_search(mx.array(rows), lengths, 5, 6, fusion)
        for row, request in enumerate(requests):
            alone = fusion_of([request])

            def earned(tokens: tuple[int, ...], alone: Fusion = alone) -> tuple[float, float]:
                """What a prefix earned so far, and what its end takes back."""
                state, total = alone.start(1), 0.0
                for token in tokens:
                    total += float(alone.gains(state)[0, 0, token])
                    state = alone.advance(state, mx.zeros((1, 1), mx.int32), mx.array([[token]], mx.int32))
                return total, float(alone.ends(state, sentence_end=True)[0, 0])

            def gain(prefix: tuple[int, ...], label: int) -> float:
                return earned((*prefix, label))[0] - earned(prefix)[0]

            listed = prefix_beam(rows[row, : lengths[row]], 6, gain)
            closed = [(tokens, score + earned(tokens)[1], times) for tokens, score, times in listed]
            assert_lists(found[row], sorted(closed, key=lambda each: -each[1]))


def test_fibers_meet_again_where_few_labels_are() -> None:
    rows, lengths = mx.array(log_probs_of(9, 3, 24)), mx.array([24, 0, 1, 20], mx.int32)
    with use_backend("cpu"):
        fast = ctc_prefix_beam(rows, lengths, 6, 0.5)
    with use_backend("fibers"):
        checked = ctc_prefix_beam(rows, lengths, 6, 0.5)
    for name, one, other in zip(fast._fields, fast, checked, strict=True):
        assert np.array_equal(np.array(one), np.array(other), equal_nan=False), name


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_frame_that_is_no_number_leaves_the_neighbours(poison: float) -> None:
    clean = log_probs_of(0, 9, 20)
    broken = clean.copy()
    broken[0, 7] = poison
    lengths = np.array([20, 0, 1, 13], np.int32)
    for backend in ("reference", TESTED):
        with use_backend(backend):
            found = ctc_prefix_search(mx.array(broken), lengths, 8, 4)
            expected = ctc_prefix_search(mx.array(clean), lengths, 8, 4)
        assert found[0] == []
        assert found[1:] == expected[1:]


def test_what_lies_behind_an_end_is_not_read_and_fixed_point_is_exact() -> None:
    rows, lengths = log_probs_of(2, 9, 20), np.array([20, 0, 1, 13], np.int32)
    beyond = np.arange(20)[None, :, None] >= lengths[:, None, None]
    with use_backend(TESTED):
        found = ctc_prefix_search(mx.array(np.where(beyond, np.nan, rows)), lengths, 8, 4, fixed=True)
        assert found == ctc_prefix_search(mx.array(rows), lengths, 8, 4, fixed=True)
    for each in itertools.chain.from_iterable(found):
        assert (each.score * 65536) == round(each.score * 65536)


def test_a_beam_too_wide_for_a_threadgroup_takes_the_reference() -> None:
    rows, lengths = mx.array(log_probs_of(0, 6, 8)), mx.array([8, 0, 1, 5], mx.int32)
    with use_backend(TESTED):
        found = ctc_prefix_beam(rows, lengths, 60)
    expected = ctc_prefix_reference(rows, lengths, 60)
    assert np.array_equal(np.array(found.labels), np.array(expected.labels))
