"""The CTC beam against a restatement that keeps whole alignments, and against itself in other batches."""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import pytest

from spool.domain import Hypothesis
from worker.decode import ctc_beam_search

LENGTHS = [13, 1, 70, 0, 7]
BEAMS = (1, 2, 4, 8, 16)
ZERO = np.float32(0)


@dataclass(frozen=True)
class Alignment:
    """A label for each frame so far, and what it scored."""

    score: np.float32 = ZERO
    labels: tuple[int, ...] = ()

    def tokens(self, blank: int) -> tuple[int, ...]:
        return tuple(self.labels[t] for t in self.times(blank))

    def times(self, blank: int) -> tuple[int, ...]:
        before = (None, *self.labels)
        return tuple(t for t, label in enumerate(self.labels) if label not in (blank, before[t]))


def restated(log_probs: np.ndarray, beam: int, beta: float = 0.0) -> list[Alignment]:
    blank = log_probs.shape[1] - 1
    kept = [Alignment()]
    for frame in log_probs:
        longer = [
            Alignment(
                one.score + frame[label] + np.float32(0 if label in (blank, *one.labels[-1:]) else beta),
                (*one.labels, label),
            )
            for one in kept
            for label in range(blank + 1)
        ]
        best = sorted(longer, key=lambda one: -one.score)[:beam]
        near = [one for one in best if one.score > best[0].score - 20]
        kept = []
        for one in near:  # best first, so the first of equals stays
            twin = (one.tokens(blank), one.labels[-1])
            if all((other.tokens(blank), other.labels[-1]) != twin for other in kept):
                kept.append(one)
    return sorted(kept, key=lambda one: -one.score)


def log_probs(seed: int, lengths: list[int], width: int = 6, sharp: float = 2.0) -> mx.array:
    """[B, T, width]; the padding is tempting."""
    rng = np.random.default_rng(seed)
    logits = sharp * rng.normal(0, 1, (len(lengths), max([*lengths, 1]), width))
    logits[..., -1] += sharp
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    for row, length in enumerate(lengths):
        logits[row, length:] = 0.0
    return mx.array(logits.astype(np.float32))


def run(rows: mx.array, lengths: list[int], beam: int, beta: float = 0.0) -> list[list[Hypothesis]]:
    return ctc_beam_search(rows, np.array(lengths, np.int32), rows.shape[2] - 1, beam, beta=beta)


@pytest.mark.parametrize("beam", BEAMS)
@pytest.mark.parametrize("sharp", [1.0, 8.0])
@pytest.mark.parametrize("beta", [0.0, 1.5])
def test_the_beam_equals_the_restatement(beam: int, sharp: float, beta: float) -> None:
    rows = log_probs(3, LENGTHS, sharp=sharp)

    found = run(rows, LENGTHS, beam, beta)

    for row, length in enumerate(LENGTHS):
        want = restated(np.array(rows)[row, :length], beam, beta)
        assert [(h.tokens, h.times) for h in found[row]] == [(a.tokens(5), a.times(5)) for a in want]
        assert [h.score for h in found[row]] == pytest.approx([float(a.score) for a in want], abs=1e-4)
        for hypothesis in found[row]:
            said = [float(rows[row, t, y]) for t, y in zip(hypothesis.times, hypothesis.tokens, strict=True)]
            assert hypothesis.confidences == pytest.approx(np.exp(said), abs=1e-6)
            assert hypothesis.durations == (0,) * len(hypothesis.tokens)


def test_a_batch_is_each_alone_bit_for_bit_in_any_order() -> None:
    rows = log_probs(4, LENGTHS)
    solo = [run(rows[i : i + 1, :n], [n], 6)[0] for i, n in enumerate(LENGTHS)]

    for order in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 3, 4, 1]):
        found = run(rows[mx.array(order)], [LENGTHS[i] for i in order], 6)
        assert found == [solo[i] for i in order]


def test_more_tokens_than_the_first_block_holds() -> None:
    rows = log_probs(5, [150], sharp=3.0) + mx.where(mx.arange(6) == 5, -9.0, 0.0)

    found = run(rows, [150], 3)[0]

    assert len(found[0].tokens) > 80
    assert found[0].tokens == restated(np.array(rows)[0], 3)[0].tokens(5)


def test_a_beam_wider_than_everything_there_is() -> None:
    rows = log_probs(6, [2], width=2)

    found = run(rows, [2], 32)[0]

    # Of two frames of one label and blank: a a and - a are one, a -, - -.
    assert sorted(h.tokens for h in found) == [(), (0,), (0,)]


def test_a_bonus_a_token_makes_more_of_them() -> None:
    rows = log_probs(9, [40])

    plain, paid, fined = (run(rows, [40], 8, beta)[0][0] for beta in (0.0, 2.0, -4.0))

    assert len(fined.tokens) < len(plain.tokens) < len(paid.tokens)


@pytest.mark.parametrize("lengths", [[0], [0, 0]])
def test_no_frames_at_all(lengths: list[int]) -> None:
    found = run(mx.zeros((len(lengths), 0, 4)), lengths, 4)

    assert found == [[Hypothesis((), 0.0, (), ())]] * len(lengths)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_an_utterance_that_is_not_a_number_fails_alone(poison: float) -> None:
    clean = np.array(log_probs(7, [9, 12, 6]))
    broken = clean.copy()
    broken[1, 5] = poison

    found = run(mx.array(broken), [9, 12, 6], 4)

    expected = run(mx.array(clean), [9, 12, 6], 4)
    assert found == [expected[0], [], expected[2]]


def test_an_impossible_label_is_no_failure() -> None:
    rows = np.array(log_probs(8, [9]))
    rows[:, :, 2] = -np.inf

    found = run(mx.array(rows), [9], 8)[0]

    assert len(found) == 8
    assert all(2 not in hypothesis.tokens for hypothesis in found)
