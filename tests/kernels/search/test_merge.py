"""merge against numpy, and prefix identity against the token lists themselves."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.search import empty_prefixes, extend, grow, merge, same_tokens

SCORES = st.sampled_from([-1.0, -2.0, -2.5, -30.0, -np.inf])


def merged(scores: list[float], classes: list[int]) -> list[float]:
    found = [-np.inf] * len(scores)
    for name in set(classes):
        members = [k for k in range(len(scores)) if classes[k] == name and scores[k] > -np.inf]
        if members:
            best = max(members, key=lambda k: (scores[k], -k))
            found[best] = float(np.logaddexp.reduce([scores[k] for k in members]))
    return found


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(SCORES, st.integers(0, 3)), min_size=1, max_size=9))
def test_a_class_adds_up_on_its_best_slot(slots: list[tuple[float, int]]) -> None:
    scores, classes = [s for s, _ in slots], np.array([c for _, c in slots])
    same = classes[:, None] == classes[None, :]

    out = np.array(merge(mx.array([scores]), mx.array(same[None])))[0]

    assert out.tolist() == pytest.approx(merged(scores, classes.tolist()), abs=1e-5)


def test_a_slot_alone_keeps_its_score_bit_for_bit() -> None:
    scores = np.random.default_rng(0).normal(-80, 30, (4, 8)).astype(np.float32)

    out = np.array(merge(mx.array(scores), mx.array(np.broadcast_to(np.eye(8, dtype=bool), (4, 8, 8)))))

    assert (out == scores).all()


@pytest.mark.parametrize("seed", range(8))
def test_prefixes_know_which_slots_hold_the_same_tokens(seed: int) -> None:
    # Given beams that branch and meet: two labels only, parents drawn freely
    rng = np.random.default_rng(seed)
    batch, beam = 3, 6
    prefixes = empty_prefixes(batch, beam, 4)
    held: list[list[tuple[int, ...]]] = [[()] * beam for _ in range(batch)]
    for step in range(40):
        prefixes = grow(prefixes, step + 2)
        parents, labels = rng.integers(0, beam, (batch, beam)), rng.integers(-1, 2, (batch, beam))

        prefixes = extend(prefixes, mx.array(parents, mx.int32), mx.array(labels, mx.int32))

        held = [
            [
                held[b][parents[b, k]] + ((int(labels[b, k]),) if labels[b, k] >= 0 else ())
                for k in range(beam)
            ]
            for b in range(batch)
        ]
        same = np.array(same_tokens(prefixes))
        for b in range(batch):
            assert same[b].tolist() == [[one == other for other in held[b]] for one in held[b]]
    assert np.array(prefixes.lengths).tolist() == [[len(tokens) for tokens in row] for row in held]


def test_a_dead_parent_reads_some_slot_and_harms_no_other() -> None:
    prefixes = empty_prefixes(1, 3, 2)

    prefixes = extend(prefixes, mx.array([[0, -1, 0]]), mx.array([[4, -1, 5]]))

    same = np.array(same_tokens(prefixes))[0]
    assert not same[0, 2]
    assert np.array(prefixes.tokens)[0, :, 0].tolist() == [4, -1, 5]
