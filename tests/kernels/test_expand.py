"""expand against every candidate enumerated in float64."""

import mlx.core as mx
import numpy as np
import pytest

from kernels.expand import Expansion, expand


def enumerate_all(
    labels: np.ndarray,
    spread: np.ndarray | None,
    durations: list[int],
    scores: np.ndarray,
    finished: np.ndarray,
    forced: np.ndarray,
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
            lp = normalised(labels[b, k])
            wait = normalised(spread[b, k]) if spread is not None else np.zeros(1)
            if forced[b, k]:
                step = max(durations[int(wait.argmax())], 1)
                options.append((scores[b, k] + lp[blank] + wait.max(), k, blank, step))
                continue
            for v in sorted(range(width), key=lambda v: (-lp[v], v)):
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
    arrays = [np.array(a) for a in (out.scores, out.parents, out.labels, out.durations)]
    batch, beam = arrays[0].shape
    return [
        [tuple(a[b, k].item() for a in arrays) for k in range(beam) if arrays[1][b, k] >= 0]  # type: ignore[misc]
        for b in range(batch)
    ]


def assert_expansion(found: list, expected: list) -> None:
    for one, other in zip(found, expected, strict=True):
        assert [x[1:] for x in one] == [x[1:] for x in other]
        assert [x[0] for x in one] == pytest.approx([x[0] for x in other], abs=1e-4)


@pytest.mark.parametrize("durations", [None, [0, 1, 2, 3, 4], [0, 2, 5], [1]])
@pytest.mark.parametrize(("batch", "beam", "width"), [(1, 1, 2), (5, 4, 9), (3, 8, 5), (2, 6, 70)])
@pytest.mark.parametrize("seed", range(3))
def test_keeps_the_best_of_all_candidates(
    durations: list[int] | None, batch: int, beam: int, width: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.normal(0, 2, (batch, beam, width)).astype(np.float32)
    labels[rng.random(labels.shape) < 0.1] = -np.inf
    labels[..., 0] = 0.5
    spread = None if durations is None else rng.normal(0, 1, (batch, beam, len(durations))).astype(np.float32)
    scores = rng.normal(-9, 3, (batch, beam)).astype(np.float32)
    scores[rng.random(scores.shape) < 0.3] = -np.inf
    finished, forced = rng.random((2, batch, beam)) < 0.25

    out = expand(
        mx.array(labels),
        None if spread is None else mx.array(spread),
        None if durations is None else mx.array(durations, mx.int32),
        mx.array(scores),
        mx.array(finished),
        mx.array(forced),
    )

    assert_expansion(rows(out), enumerate_all(labels, spread, durations or [0], scores, finished, forced))
    assert np.array(out.finite).all()


def test_equal_candidates_stand_by_slot_then_label_then_duration() -> None:
    out = expand(
        mx.zeros((1, 2, 3)),
        mx.zeros((1, 2, 2)),
        mx.array([0, 1], mx.int32),
        mx.zeros((1, 2)),
        mx.zeros((1, 2), mx.bool_),
        mx.zeros((1, 2), mx.bool_),
    )
    assert [x[1:] for x in rows(out)[0]] == [(0, 0, 0), (0, 0, 1)]


def test_label_scores_are_probabilities_among_labels_and_blank() -> None:
    labels = mx.array([[[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]])
    none = mx.zeros((1, 2), mx.bool_)

    out = expand(labels, None, None, mx.array([[-1.0, -mx.inf]]), none, none)

    assert np.array(out.labels).tolist() == [[2, 1]]
    exact = normalised(np.array([1.0, 2.0, 3.0]))
    assert np.array(out.label_scores)[0] == pytest.approx([exact[2], exact[1]], abs=1e-6)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_running_slot_without_a_normaliser_is_reported(poison: float) -> None:
    labels = np.zeros((4, 2, 3), np.float32)
    labels[:3, 1, 1] = poison
    scores = np.zeros((4, 2), np.float32)
    scores[1, 1] = -np.inf  # dead: its logits mean nothing
    finished = np.zeros((4, 2), bool)
    finished[2, 1] = True  # carried: they are not read

    out = expand(
        mx.array(labels), None, None, mx.array(scores), mx.array(finished), mx.zeros((4, 2), mx.bool_)
    )

    assert np.array(out.finite).tolist() == [False, True, True, True]
    assert np.isfinite(np.array(out.scores)[1:]).all()
