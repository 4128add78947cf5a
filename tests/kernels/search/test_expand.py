"""expand against every candidate enumerated in float64, without fusion and with every kind of it."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from kernels.search import FINISHED, FORCED, Bonus, Expansion
from kernels.search import expand_reference as expand
from kernels.search.expand import RUNS


def status_of(finished: np.ndarray, forced: np.ndarray) -> mx.array:
    return mx.array(np.where(finished, FINISHED, np.where(forced, FORCED, RUNS)).astype(np.int32))


def fused(lp: np.ndarray, gains: np.ndarray, alpha: float, *, weighted: bool) -> np.ndarray:
    """NeMo's fused scores of labels and blank."""
    found = np.append(lp[:-1] + gains, lp[-1])
    if weighted:
        found[:-1] += alpha * np.log1p(-min(np.exp(lp[-1]), 0.99))
        found[-1] *= 1 + alpha
    return found


def enumerate_all(
    labels: np.ndarray,
    spread: np.ndarray | None,
    durations: list[int],
    scores: np.ndarray,
    finished: np.ndarray,
    forced: np.ndarray,
    bonus: Bonus | None = None,
) -> list[list[tuple[float, int, int, int]]]:
    """Per utterance, the best (score, slot, label, frames), by score and then in the order of enumeration."""
    batch, beam, width = labels.shape
    blank = width - 1
    found = []
    for b in range(batch):
        options: list[tuple[float, int, int, int]] = []
        for k in range(beam):
            if not scores[b, k] > -np.inf:
                continue
            if finished[b, k]:
                options.append((float(scores[b, k]), k, -1, 0))
                continue
            acoustic = lp = normalised(labels[b, k])
            if bonus is not None:
                gains, alpha = np.array(bonus.gains)[b, k], float(bonus.alphas[b])
                lp = fused(acoustic, gains, alpha, weighted=bonus.weighted)
            early = bonus is not None and bonus.early
            wait = normalised(spread[b, k]) if spread is not None else np.zeros(1)
            if forced[b, k]:
                step = max(durations[int(wait.argmax())], 1)
                only = acoustic if early else lp
                options.append((scores[b, k] + only[blank] + wait.max(), k, blank, step))
                continue
            ranks = acoustic if early else lp
            order = sorted(range(width), key=lambda v: (-ranks[v], v))
            for v in order[: beam if early else width]:
                for d, step in enumerate(durations):
                    frames = max(step, 1) if v == blank else step
                    options.append((scores[b, k] + lp[v] + wait[d], k, v, frames))
        options = [o for o in options if o[0] > -np.inf]
        options.sort(key=lambda option: -option[0])
        found.append(options[:beam])
    return found


def normalised(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return np.asarray(x - x.max() - np.log(np.exp(x - x.max()).sum()))


def rows(out: Expansion) -> list[list[tuple[float, int, int, int]]]:
    arrays = [np.array(a) for a in (out.gains[0], *out.choice)]
    batch, beam = arrays[0].shape
    return [
        [tuple(a[b, k].item() for a in arrays) for k in range(beam) if arrays[1][b, k] >= 0]
        for b in range(batch)
    ]


def assert_expansion(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert [x[1:] for x in one] == [x[1:] for x in other]
        assert [x[0] for x in one] == pytest.approx([x[0] for x in other], abs=1e-4)


def joined(labels: np.ndarray, spread: np.ndarray | None) -> mx.array:
    return mx.array(labels if spread is None else np.concatenate([labels, spread], axis=-1))


@pytest.mark.parametrize("durations", [None, [0, 1, 2, 3, 4], [0, 2, 5], [1]])
@pytest.mark.parametrize(("batch", "beam", "width"), [(1, 1, 2), (5, 4, 9), (3, 8, 5), (2, 6, 70)])
@pytest.mark.parametrize("fusion", [None, "late", "early", "late-weighted", "early-weighted"])
def test_keeps_the_best_of_all_candidates(
    durations: list[int] | None, batch: int, beam: int, width: int, fusion: str | None
) -> None:
    rng = np.random.default_rng((batch, beam, width))
    labels = rng.normal(0, 2, (batch, beam, width)).astype(np.float32)
    labels[rng.random(labels.shape) < 0.1] = -np.inf
    labels[..., 0] = 0.5
    spread = None if durations is None else rng.normal(0, 1, (batch, beam, len(durations))).astype(np.float32)
    scores = rng.normal(-9, 3, (batch, beam)).astype(np.float32)
    scores[rng.random(scores.shape) < 0.3] = -np.inf
    finished, forced = rng.random((2, batch, beam)) < 0.25
    bonus = None
    if fusion is not None:
        gains = rng.normal(0, 2, (batch, beam, width - 1)).astype(np.float32)
        alphas = np.abs(rng.normal(0, 0.5, batch)).astype(np.float32)
        bonus = Bonus(mx.array(gains), mx.array(alphas), "weighted" in fusion, "early" in fusion)
    table = None if durations is None else mx.array(durations, mx.int32)

    out = expand(joined(labels, spread), table, mx.array(scores), status_of(finished, forced), bonus)

    expected = enumerate_all(labels, spread, durations or [0], scores, finished, forced, bonus)
    assert_expansion(rows(out), expected)
    assert np.array(out.finite).all()
    for b, row in enumerate(rows(out)):
        for place, (_, slot, label, _) in enumerate(row):
            own = normalised(labels[b, slot])[label] if label >= 0 else 0.0
            assert np.array(out.gains)[1, b, place] == pytest.approx(own, abs=1e-4)
            given = 0.0
            if bonus is not None and label >= 0 and not (forced[b, slot] and bonus.early):
                lp = normalised(labels[b, slot])
                row_of = fused(lp, gains[b, slot], float(alphas[b]), weighted=bonus.weighted)
                given = row_of[label] - lp[label]
            assert np.array(out.gains)[2, b, place] == pytest.approx(given, abs=1e-4)


def test_equal_candidates_stand_by_slot_then_label_then_duration() -> None:
    out = expand(
        mx.zeros((1, 2, 5)), mx.array([0, 1], mx.int32), mx.zeros((1, 2)), mx.zeros((1, 2), mx.int32)
    )
    assert [x[1:] for x in rows(out)[0]] == [(0, 0, 0), (0, 0, 1)]


def test_label_scores_are_probabilities_among_labels_and_blank() -> None:
    labels = mx.array([[[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]])

    out = expand(labels, None, mx.array([[-1.0, -mx.inf]]), mx.zeros((1, 2), mx.int32))

    assert np.array(out.choice[1]).tolist() == [[2, 1]]
    exact = normalised(np.array([1.0, 2.0, 3.0]))
    assert np.array(out.gains[1])[0] == pytest.approx([exact[2], exact[1]], abs=1e-6)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_running_slot_without_a_normaliser_is_reported(poison: float) -> None:
    labels = np.zeros((4, 2, 3), np.float32)
    labels[:3, 1, 1] = poison
    scores = np.zeros((4, 2), np.float32)
    scores[1, 1] = -np.inf  # dead: its logits mean nothing
    finished = np.zeros((4, 2), bool)
    finished[2, 1] = True  # carried: they are not read

    out = expand(mx.array(labels), None, mx.array(scores), status_of(finished, np.zeros((4, 2), bool)))

    assert np.array(out.finite).tolist() == [False, True, True, True]
    assert np.isfinite(np.array(out.gains[0])[1:]).all()
