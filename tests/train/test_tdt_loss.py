"""The TDT loss against every alignment written out."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from ops.train.model.joint_scores import joint_scores
from ops.train.model.tdt_loss import lattice_log_likelihood, tdt_log_likelihood

DURATIONS = (0, 1, 2, 4)
VOCABULARY = 5


def alignments(
    frames: int, labels: int, durations: tuple[int, ...]
) -> Iterator[list[tuple[int, int, bool, int]]]:
    """Every path as its moves (t, u, is a label, index of the duration); the last one is a blank."""

    def onward(t: int, u: int) -> Iterator[list[tuple[int, int, bool, int]]]:
        if t == frames:
            return
        for k, d in enumerate(durations):
            if u < labels:
                yield from ([(t, u, True, k), *rest] for rest in onward(t + d, u + 1))
            if d > 0 and t + d <= frames:
                if t + d == frames and u == labels:
                    yield [(t, u, False, k)]
                yield from ([(t, u, False, k), *rest] for rest in onward(t + d, u))

    def bounded(t: int, u: int) -> Iterator[list[tuple[int, int, bool, int]]]:
        yield from (path for path in onward(t, u) if all(move[0] < frames for move in path))

    yield from bounded(0, 0)


def brute_force(logits: Tensor, targets: list[int], durations: tuple[int, ...], sigma: float) -> Tensor:
    """Sum over all alignments of one utterance; logits [T, U + 1, V + 1 + D]."""
    tokens = logits[..., : VOCABULARY + 1].log_softmax(-1) - sigma
    spans = logits[..., VOCABULARY + 1 :].log_softmax(-1)
    scores = []
    for path in alignments(len(logits), len(targets), durations):
        terms = [
            tokens[t, u, targets[u] if is_label else VOCABULARY] + spans[t, u, k]
            for t, u, is_label, k in path
        ]
        scores.append(torch.stack(terms).sum())
    return torch.stack(scores).logsumexp(0)


def test_alignments_of_a_tiny_case_are_the_known_ones() -> None:
    # One label, two frames, durations 0 and 1: the label at frame 0 or 1, of duration 0 or 1, blanks of 1.
    paths = [[(t, is_label, k) for t, _, is_label, k in path] for path in alignments(2, 1, (0, 1))]
    assert sorted(paths) == sorted(
        [
            [(0, True, 0), (0, False, 1), (1, False, 1)],
            [(0, True, 1), (1, False, 1)],
            [(0, False, 1), (1, True, 0), (1, False, 1)],
        ]
    )


@pytest.mark.parametrize("sigma", [0.0, 0.05])
def test_equals_the_sum_over_all_alignments_in_a_batch_of_unequal_lengths(sigma: float) -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(4, 6, 4, VOCABULARY + 1 + len(DURATIONS), generator=generator) * 2
    logits = logits.double().requires_grad_()
    frames, labels = torch.tensor([6, 4, 3, 1]), torch.tensor([3, 2, 0, 2])
    targets = torch.tensor([[0, 4, 2], [1, 1, 0], [0, 0, 0], [3, 2, 0]])
    likelihood = tdt_log_likelihood(logits, targets, frames, labels, DURATIONS, sigma)
    expected = torch.stack(
        [
            brute_force(logits[b, : frames[b]], targets[b, : labels[b]].tolist(), DURATIONS, sigma)
            for b in range(4)
        ]
    )
    assert torch.allclose(likelihood.double(), expected, atol=1e-5)
    (ours,) = torch.autograd.grad(likelihood.sum(), logits)
    (theirs,) = torch.autograd.grad(expected.sum(), logits)
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_an_utterance_does_not_feel_its_neighbours_padding() -> None:
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(2, 9, 5, VOCABULARY + 1 + len(DURATIONS), generator=generator)
    targets = torch.randint(0, VOCABULARY, (2, 4), generator=generator)
    alone = tdt_log_likelihood(
        logits[1:, :5, :3], targets[1:, :2], torch.tensor([5]), torch.tensor([2]), DURATIONS
    )
    together = tdt_log_likelihood(logits, targets, torch.tensor([9, 5]), torch.tensor([4, 2]), DURATIONS)
    assert torch.allclose(alone[0], together[1], atol=1e-5)


def test_every_answer_to_one_frame_has_a_probability_that_sums_below_one() -> None:
    # One frame and durations 0 and 1: all label strings of up to three labels together.
    logits = torch.randn(1, 1, 4, 2 + 1 + 2, generator=torch.Generator().manual_seed(5))
    total = 0.0
    for size in range(4):
        for code in range(2**size):
            targets = torch.tensor([[(code >> k) & 1 for k in range(size)] + [0] * (3 - size)])
            score = tdt_log_likelihood(logits, targets, torch.tensor([1]), torch.tensor([size]), (0, 1))
            total += math.exp(score.item())
    assert 0.0 < total < 1.0


def test_a_label_that_cannot_be_reached_has_no_probability() -> None:
    logits = torch.zeros(1, 2, 3, VOCABULARY + 1 + 1)
    score = tdt_log_likelihood(
        logits, torch.tensor([[0, 1]]), torch.tensor([2]), torch.tensor([2]), durations=(1,)
    )
    assert score.item() < -1e29


def test_scores_made_twice_give_the_loss_and_gradients_of_the_written_out_lattice() -> None:
    torch.manual_seed(3)
    frames, outputs = torch.randn(3, 11, 8), torch.randn(3, 6, 8)
    weight, bias = (
        torch.randn(VOCABULARY + 1 + len(DURATIONS), 8),
        torch.randn(VOCABULARY + 1 + len(DURATIONS)),
    )
    leaves = [x.requires_grad_() for x in (frames, outputs, weight, bias)]
    targets = torch.randint(0, VOCABULARY, (3, 5))
    lengths, labels = torch.tensor([11, 8, 5]), torch.tensor([5, 3, 0])
    logits = torch.relu(frames[:, :, None] + outputs[:, None]) @ weight.T + bias
    expected = tdt_log_likelihood(logits, targets, lengths, labels, DURATIONS, 0.02)
    sizes = list(zip(lengths.tolist(), (labels + 1).tolist(), strict=True))
    one, other, matrix, offset = leaves
    blank, label, spans = joint_scores(one, other, matrix, offset, targets, sizes, VOCABULARY)
    no_label, labelled = (scores - 0.02 + spans.permute(3, 0, 1, 2) for scores in (blank, label))
    likelihood = lattice_log_likelihood(no_label, labelled, lengths, labels, DURATIONS)
    assert torch.allclose(likelihood, expected, rtol=1e-5)
    for ours, theirs in zip(
        torch.autograd.grad(likelihood.sum(), leaves),
        torch.autograd.grad(expected.sum(), leaves),
        strict=True,
    ):
        assert torch.allclose(ours, theirs, atol=1e-5)
