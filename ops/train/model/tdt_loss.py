"""The loss of the token-and-duration transducer, as a forward algorithm over anti-diagonals.

Xu et al. 2023, "Efficient Sequence Transduction by Jointly Predicting Tokens and Durations" (equations 5 to
8). A state (t, u) means: u labels out, next frame t. A label of duration d leads to (t + d, u + 1), a
blank of duration d > 0 to (t + d, u). Frames must be consumed exactly and, as in NeMo's loss, the last of
them by a blank: every path ends in (T, U). Every move raises n = t + u, so all states of one anti-diagonal
follow at once from the diagonals before it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

IMPOSSIBLE = -1e30


def _diagonals(x: Tensor, shift: int, count: int) -> Tensor:
    """Value of the state (n - shift - u, u) at [n, batch, u]; IMPOSSIBLE where there is none.

    x: [batch, T, U + 1]. The shift turns the weight of a move that leaves a state into the weight of the
    move that arrives `shift` diagonals later.
    """
    batch, frames, labels = x.shape
    u = torch.arange(labels, device=x.device)
    t = torch.arange(count, device=x.device)[:, None] - shift - u[None, :]
    inside = (t >= 0) & (t < frames)
    # Gathering along one flat axis makes the backward pass an index_add of the same size.
    flat = (t.clamp(0, frames - 1) * labels + u[None, :]).reshape(-1)
    picked = x.reshape(batch, -1).index_select(1, flat).view(batch, count, labels)
    return picked.masked_fill(~inside[None], IMPOSSIBLE).transpose(0, 1)


def move_scores(
    logits: Tensor, targets: Tensor, frames: Tensor, durations: Sequence[int], sigma: float
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of blank and of the next label, with every duration: two [D, batch, T, U + 1]."""
    vocabulary = logits.shape[-1] - 1 - len(durations)
    tokens = logits[..., : vocabulary + 1].float()
    norm = tokens.logsumexp(-1)
    spans = logits[..., vocabulary + 1 :].float().log_softmax(-1).permute(3, 0, 1, 2)
    blank = tokens[..., vocabulary] - norm - sigma
    wanted = torch.cat([targets, targets.new_zeros(len(targets), 1)], 1)[:, None, :, None]
    label = tokens.gather(3, wanted.expand(-1, tokens.shape[1], -1, -1)).squeeze(3) - norm - sigma
    ended = torch.arange(logits.shape[1], device=logits.device)[None, :, None] >= frames[:, None, None]
    return (blank + spans).masked_fill(ended[None], IMPOSSIBLE), (label + spans).masked_fill(
        ended[None], IMPOSSIBLE
    )


def tdt_log_likelihood(
    logits: Tensor,
    targets: Tensor,
    frames: Tensor,
    labels: Tensor,
    durations: Sequence[int] = (0, 1, 2, 3, 4),
    sigma: float = 0.0,
) -> Tensor:
    """Log-probability of each utterance's labels, summed over all alignments: float32 [batch].

    logits [batch, T, U + 1, V + 1 + D], blank at V, unnormalised; targets int64 [batch, U]; frames and labels
    the valid lengths, int64 [batch]. sigma is taken off every token score (logit under-normalisation).
    """
    blank, label = move_scores(logits, targets, frames, durations, sigma)
    return lattice_log_likelihood(blank, label, frames, labels, durations)


def lattice_log_likelihood(
    blank: Tensor, label: Tensor, frames: Tensor, labels: Tensor, durations: Sequence[int]
) -> Tensor:
    """The same from the log-probabilities of the moves, two of [D, batch, T, U + 1]."""
    batch, size, states = blank.shape[1:]
    count = size + max(durations) + states
    blank_spans = [d for d in durations if d > 0]
    blank_moves = torch.stack([_diagonals(blank[k], d, count) for k, d in enumerate(durations) if d > 0])
    label_moves = torch.stack([_diagonals(label[k], d + 1, count) for k, d in enumerate(durations)])
    # A label comes from the state one to the left.
    label_moves = label_moves.roll(1, -1)
    label_moves[..., 0] = IMPOSSIBLE
    u = torch.arange(states, device=blank.device)
    before = blank.new_full((batch, states), IMPOSSIBLE)
    start = before.clone()
    start[:, 0] = 0.0
    alphas = [start]
    for n in range(1, count):
        from_blank = torch.stack([alphas[n - d] if n >= d else before for d in blank_spans])
        from_label = torch.stack([alphas[n - d - 1] if n > d else before for d in durations]).roll(1, -1)
        t = n - u
        by_label = (from_label + label_moves[:, n]).masked_fill(t >= frames[:, None], IMPOSSIBLE)
        arrivals = torch.cat([from_blank + blank_moves[:, n], by_label])
        reached = (t >= 0) & (t <= frames[:, None]) & (u <= labels[:, None])
        alphas.append(arrivals.logsumexp(0).masked_fill(~reached, IMPOSSIBLE))
    rows = torch.arange(batch, device=blank.device)
    return torch.stack(alphas)[frames + labels, rows, labels]
