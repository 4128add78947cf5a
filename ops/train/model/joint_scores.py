"""Joint network and log-softmax of the TDT loss as one function that keeps no lattice of vocabulary scores.

A lattice has frames times labels states, each with a score for every piece: written out, it is most of the
loss's time and memory. Here each utterance's lattice is made within the processor's cache, reduced to what
the loss reads (blank, next label, durations) and made again on the way back. Knows no transducer recursion.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

IMPOSSIBLE = -1e30


def _states(frames: Tensor, outputs: Tensor, dtype: torch.dtype) -> Tensor:
    """[T, J] and [U, J] to the hidden states [T * U, J]."""
    return torch.relu(frames[:, None] + outputs[None]).flatten(0, 1).to(dtype)


def _scores(states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (states @ weight.to(states.dtype).t()).float() + bias


class _JointScores(torch.autograd.Function):
    """See joint_scores."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        frames: Tensor,
        outputs: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        sizes: list[tuple[int, int]],
        vocabulary: int,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor, Tensor]:
        batch, size, states = frames.shape[0], frames.shape[1], outputs.shape[1]
        durations = weight.shape[0] - vocabulary - 1
        blank = frames.new_full((batch, size, states), IMPOSSIBLE)
        label = blank.clone()
        spans = frames.new_full((batch, size, states, durations), IMPOSSIBLE)
        for b, (t, u) in enumerate(sizes):
            scores = _scores(_states(frames[b, :t], outputs[b, :u], dtype), weight, bias).view(t, u, -1)
            tokens = scores[..., : vocabulary + 1]
            norm = tokens.logsumexp(-1)
            blank[b, :t, :u] = tokens[..., vocabulary] - norm
            wanted = targets[b, : u - 1].expand(t, -1).unsqueeze(2)
            label[b, :t, : u - 1] = tokens[:, :-1].gather(2, wanted).squeeze(2) - norm[:, :-1]
            spans[b, :t, :u] = scores[..., vocabulary + 1 :].log_softmax(-1)
        ctx.save_for_backward(frames, outputs, weight, bias, targets)
        ctx.rest = sizes, vocabulary, dtype
        return blank, label, spans

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        to_blank, to_label, to_spans = gradients
        frames, outputs, weight, bias, targets = ctx.saved_tensors
        sizes, vocabulary, dtype = ctx.rest
        to_frames, to_outputs = torch.zeros_like(frames), torch.zeros_like(outputs)
        to_weight, to_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        for b, (t, u) in enumerate(sizes):
            states = _states(frames[b, :t], outputs[b, :u], dtype)
            scores = _scores(states, weight, bias).view(t, u, -1)
            on_blank, on_spans = to_blank[b, :t, :u], to_spans[b, :t, :u]
            on_label = to_label[b, :t, : u - 1]
            total = on_blank.clone()
            total[:, :-1] += on_label
            tokens, lengths = scores[..., : vocabulary + 1], scores[..., vocabulary + 1 :]
            tokens.copy_(tokens.softmax(-1).mul_(-total.unsqueeze(2)))
            tokens[..., vocabulary] += on_blank
            wanted = targets[b, : u - 1].expand(t, -1).unsqueeze(2)
            tokens[:, :-1].scatter_add_(2, wanted, on_label.unsqueeze(2))
            lengths.copy_(on_spans - lengths.softmax(-1) * on_spans.sum(-1, keepdim=True))
            flat = scores.flatten(0, 1)
            to_bias += flat.sum(0)
            flat = flat.to(dtype)
            to_weight += (flat.t() @ states).float()
            to_states = ((flat @ weight.to(dtype)) * (states > 0)).view(t, u, -1)
            to_frames[b, :t] = to_states.sum(1, dtype=torch.float32)
            to_outputs[b, :u] = to_states.sum(0, dtype=torch.float32)
        return to_frames, to_outputs, to_weight, to_bias, None, None, None, None


def joint_scores(
    frames: Tensor,
    outputs: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    sizes: list[tuple[int, int]],
    vocabulary: int,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities of blank and next label [batch, T, U + 1] and of the durations [batch, T, U + 1, D].

    frames [batch, T, J] and outputs [batch, U + 1, J] are the two projections that the joint network adds,
    float32; weight [V + 1 + D, J] and bias [V + 1 + D] its last layer; sizes the valid (T, U + 1) of each
    utterance, outside of which all is IMPOSSIBLE; dtype that of the matrix products.
    """
    return _JointScores.apply(frames, outputs, weight, bias, targets, sizes, vocabulary, dtype)
