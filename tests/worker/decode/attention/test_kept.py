"""The beams of NeMo and WeNet: ends stay and compete, one utterance's numbers are nothing to another."""

import mlx.core as mx
import numpy as np

from worker.decode import KeptBeam, KeptState, SumBeam

EOS, PAD = 3, 2


def test_the_answer_is_the_best_by_its_own_length() -> None:
    beams = KeptBeam((EOS, PAD), beam=2, length_penalty=2.0)
    state = beams.start([2], [1])
    # Equal prefixes; the shorter ends: -2.0 / (8/6)^2 = -1.13, the longer goes on: -2.2 / (9/6)^2 = -0.98.
    state, _, tokens = beams.advance(state, mx.array([[[7, 8]] * 2]), mx.array([[[-1.0, -5.0]] * 2]), EOS)
    assert tokens.tolist() == [[7, 8]]
    scores = mx.array([[[-1.0, -1.2], [-9.0, -9.5]]])
    state, parents, tokens = beams.advance(state, mx.array([[[EOS, 9], [9, 7]]]), scores, EOS)
    assert (parents.tolist(), tokens.tolist(), state.done.tolist()) == ([[0, 0]], [[EOS, 9]], [True])
    outcome = beams.collect(state, 0)
    assert [(each.tokens, each.ended) for each in outcome.hypotheses] == [((7,), True), ((7, 9), False)]
    assert outcome.answer == 1
    assert KeptBeam((EOS, PAD), beam=2).collect(state, 0).answer == 0


def test_an_end_competes_until_it_is_pushed_out() -> None:
    beams = KeptBeam((EOS, PAD), beam=2)
    state = beams.start([9], [1])
    state, *_ = beams.advance(state, mx.array([[[EOS, 7]] * 2]), mx.array([[[-1.0, -1.5]] * 2]), EOS)
    assert state.ended.tolist() == [[True, False]]
    # What ended is one candidate, its score unchanged, and goes on as a pad.
    best = mx.array([[[8, 9], [8, 9]]])
    state, parents, tokens = beams.advance(state, best, mx.array([[[0.0, 0.0], [-0.1, -4.0]]]), EOS)
    assert (parents.tolist(), tokens.tolist()) == ([[0, 1]], [[PAD, 8]])
    assert np.allclose(np.array(state.scores), [[-1.0, -1.6]])
    wider = mx.array([[[0.0, 0.0], [0.7, 0.65]]])  # as no log-probability is; two better ones push it out
    state, parents, tokens = beams.advance(state, best, wider, EOS)
    assert (parents.tolist(), tokens.tolist()) == ([[1, 1]], [[8, 9]])
    assert not state.done.item()


def test_numbers_that_are_none_end_their_own_utterance_alone() -> None:
    beams = KeptBeam((EOS, PAD), beam=2)
    state = KeptState.join([beams.start([5], [1]), beams.start([5], [4])])
    tokens = mx.array([[[-1, -1]] * 2, [[7, 8]] * 2])
    scores = mx.array([[[-np.inf] * 2] * 2, [[-1.0, -2.0]] * 2])
    state, _, fed = beams.advance(state, tokens, scores, EOS)
    assert state.done.tolist() == [True, False]
    assert (np.array(fed) >= 0).all()
    assert beams.collect(state, 0).hypotheses == ()
    left = state.select([1])
    assert [each.tokens for each in beams.collect(left, 0).hypotheses] == [(7,), (8,)]


def test_greedy_takes_the_best_until_it_ends() -> None:
    beams = KeptBeam((EOS, PAD))
    assert beams.candidates == 1
    state = beams.start([3], [2])
    for token in (7, 8, EOS):
        assert not state.done.item()
        state, *_ = beams.advance(state, mx.array([[[token]]]), mx.array([[[-0.5]]]), EOS)
    outcome = beams.collect(state, 0)
    assert (outcome.hypotheses[0].tokens, outcome.hypotheses[0].score) == ((7, 8), -1.5)


def test_sums_alone_are_compared_until_the_search_is_over() -> None:
    beams = SumBeam((EOS,), beam=2, length_penalty=1.0)
    state = beams.start([3], [1])
    steps = [
        ([[7, EOS], [7, EOS]], [[-1.0, -1.5], [-1.0, -1.5]]),
        ([[8, 9], [8, 9]], [[-0.25, -4.0], [-0.25, -4.0]]),
        ([[EOS, 9], [8, 9]], [[-0.5, -4.0], [-0.25, -4.0]]),
    ]
    kept = []
    for tokens, scores in steps:
        assert not state.done.item()
        state, _, following = beams.advance(state, mx.array([tokens]), mx.array([scores]), EOS)
        kept.append(np.array(following)[0].tolist())
    # The early end is behind, stays as it is, and is ahead once the other one has ended.
    assert kept == [[7, EOS], [8, EOS], [EOS, EOS]]
    assert state.done.item()
    # By score / tokens, the start among them: -1.75 / 3 is better than -1.5 / 1.
    found = beams.collect(state, 0)
    assert [(each.tokens, each.score, each.log_probs) for each in found.hypotheses] == [
        ((7, 8), -1.75, (-1.0, -0.25)),
        ((), -1.5, ()),
    ]
    assert found.answer == 0


def test_one_hypothesis_whose_scores_are_none_ends_its_utterance() -> None:
    beams = SumBeam((EOS,), beam=2)
    state = KeptState.join([beams.start([5], [1]), beams.start([5], [1])])
    tokens = mx.array([[[7, 8]] * 2] * 2)
    state, *_ = beams.advance(state, tokens, mx.array([[[-1.0, -2.0]] * 2] * 2), EOS)
    scores = mx.array([[[-1.0, -2.0], [np.nan, np.nan]], [[-1.0, -2.0]] * 2])
    state, *_ = beams.advance(state, tokens, scores, EOS)
    assert state.done.tolist() == [True, False]
    assert beams.collect(state, 0).hypotheses == ()
    assert len(beams.collect(state, 1).hypotheses) == 2
