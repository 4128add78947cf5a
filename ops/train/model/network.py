"""A FastConformer with a TDT head and a CTC head, in plain PyTorch, under NeMo's weight names.

The shapes and the order of operations are those of NeMo's ConformerEncoder ("FastConformer with linearly
scalable attention", Rekesh et al. 2023), RNNTDecoder and RNNTJoint, so that one set of weights runs in both
(models/demo/README.md says how that was checked). Knows no data, loss or optimiser.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Shape:
    """The sizes of the network; the defaults are the demo model's."""

    mels: int = 80
    width: int = 144
    layers: int = 6
    heads: int = 4
    channels: int = 32
    kernel: int = 9
    expansion: int = 4
    prediction: int = 160
    joint: int = 160
    vocabulary: int = 128
    durations: tuple[int, ...] = (0, 1, 2, 3, 4)
    dropout: float = 0.1


def halved(length: Tensor) -> Tensor:
    """Length after a convolution of kernel 3, stride 2, padding 1."""
    return torch.div(length - 1, 2, rounding_mode="floor") + 1


def valid(length: Tensor, size: int) -> Tensor:
    """Bool [batch, size]: True where a frame belongs to the utterance."""
    return torch.arange(size, device=length.device)[None, :] < length[:, None]


class Subsampling(nn.Module):
    """Eightfold depthwise-striding subsampling: [batch, frames, mels] to [batch, frames / 8, width]."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        c = shape.channels
        stages: list[nn.Module] = [nn.Conv2d(1, c, 3, 2, 1), nn.ReLU()]
        for _ in range(2):
            stages += [nn.Conv2d(c, c, 3, 2, 1, groups=c), nn.Conv2d(c, c, 1), nn.ReLU()]
        self.conv = nn.Sequential(*stages)
        bands = shape.mels
        for _ in range(3):
            bands = (bands - 1) // 2 + 1
        self.out = nn.Linear(c * bands, shape.width)

    def forward(self, x: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        # On processors PyTorch's convolutions of few channels are three times slower in bfloat16.
        with torch.autocast(x.device.type, enabled=x.device.type != "cpu", dtype=torch.bfloat16):
            x, length = self._convolved(x.unsqueeze(1), length)
        x = x * valid(length, x.shape[2])[:, None, :, None]
        batch, channels, frames, bands = x.shape
        return self.out(x.transpose(1, 2).reshape(batch, frames, channels * bands)), length

    def _convolved(self, x: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        for stage in self.conv:
            if isinstance(stage, nn.Conv2d):
                x = x * valid(length, x.shape[2])[:, None, :, None]
                if stage.stride[0] == 2:
                    length = halved(length)
            x = stage(x)
        return x, length


class FeedForward(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.linear1 = nn.Linear(shape.width, shape.width * shape.expansion)
        self.linear2 = nn.Linear(shape.width * shape.expansion, shape.width)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(F.silu(self.linear1(x))))


class RelativeAttention(nn.Module):
    """Multi-head attention with relative positions (Dai et al. 2019, section 3.3)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        d = shape.width
        self.heads = shape.heads
        self.linear_q, self.linear_k, self.linear_v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.linear_out, self.linear_pos = nn.Linear(d, d), nn.Linear(d, d, bias=False)
        self.pos_bias_u = nn.Parameter(torch.zeros(shape.heads, d // shape.heads))
        self.pos_bias_v = nn.Parameter(torch.zeros(shape.heads, d // shape.heads))
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor, positions: Tensor, keep: Tensor) -> Tensor:
        """x [batch, T, d], positions [2T - 1, d] from T-1 down to -(T-1), keep bool [batch, T]."""
        batch, size, width = x.shape
        per_head = (batch, size, self.heads, -1)
        q = self.linear_q(x).view(per_head)
        k = self.linear_k(x).view(per_head).transpose(1, 2)
        v = self.linear_v(x).view(per_head).transpose(1, 2)
        p = self.linear_pos(positions).view(2 * size - 1, self.heads, -1).transpose(0, 1)
        content = (q + self.pos_bias_u).transpose(1, 2) @ k.transpose(-2, -1)
        place = (q + self.pos_bias_v).transpose(1, 2) @ p.transpose(-2, -1)
        scores = (content + self._shifted(place)) / math.sqrt(width // self.heads)
        mask = (keep[:, None, :] & keep[:, :, None])[:, None]
        weights = scores.masked_fill(~mask, -10000.0).softmax(-1).masked_fill(~mask, 0.0)
        mixed = (self.dropout(weights) @ v).transpose(1, 2).reshape(batch, size, width)
        return self.linear_out(mixed)

    @staticmethod
    def _shifted(x: Tensor) -> Tensor:
        """Column j of row i becomes the score of distance i - j: [.., T, 2T - 1] to [.., T, T]."""
        batch, heads, size, span = x.shape
        x = F.pad(x, (1, 0)).view(batch, heads, span + 1, size)
        return x[:, :, 1:].reshape(batch, heads, size, span)[..., :size]


class Convolution(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        d = shape.width
        self.pointwise_conv1 = nn.Conv1d(d, 2 * d, 1)
        self.depthwise_conv = nn.Conv1d(d, d, shape.kernel, padding=(shape.kernel - 1) // 2, groups=d)
        self.batch_norm = nn.BatchNorm1d(d)
        self.pointwise_conv2 = nn.Conv1d(d, d, 1)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        x = F.glu(self.pointwise_conv1(x.transpose(1, 2)), dim=1)
        x = self.depthwise_conv(x * keep[:, None, :])
        return self.pointwise_conv2(F.silu(self.batch_norm(x))).transpose(1, 2)


class ConformerLayer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        d = shape.width
        self.norm_feed_forward1, self.feed_forward1 = nn.LayerNorm(d), FeedForward(shape)
        self.norm_self_att, self.self_attn = nn.LayerNorm(d), RelativeAttention(shape)
        self.norm_conv, self.conv = nn.LayerNorm(d), Convolution(shape)
        self.norm_feed_forward2, self.feed_forward2 = nn.LayerNorm(d), FeedForward(shape)
        self.norm_out = nn.LayerNorm(d)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor, positions: Tensor, keep: Tensor) -> Tensor:
        x = x + 0.5 * self.dropout(self.feed_forward1(self.norm_feed_forward1(x)))
        x = x + self.dropout(self.self_attn(self.norm_self_att(x), positions, keep))
        x = x + self.dropout(self.conv(self.norm_conv(x), keep))
        x = x + 0.5 * self.dropout(self.feed_forward2(self.norm_feed_forward2(x)))
        return self.norm_out(x)


def relative_positions(size: int, width: int, device: torch.device) -> Tensor:
    """Interleaved sines and cosines of the distances size-1 down to -(size-1): [2 size - 1, width]."""
    distance = torch.arange(size - 1, -size, -1, device=device, dtype=torch.float32)[:, None]
    rates = torch.exp(torch.arange(0, width, 2, device=device).float() * -(math.log(10000.0) / width))
    table = torch.zeros(2 * size - 1, width, device=device)
    table[:, 0::2] = torch.sin(distance * rates)
    table[:, 1::2] = torch.cos(distance * rates)
    return table


class Encoder(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.width = shape.width
        self.pre_encode = Subsampling(shape)
        self.layers = nn.ModuleList(ConformerLayer(shape) for _ in range(shape.layers))
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, features: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        """features [batch, frames, mels] normalised and zero padded; gives [batch, T, width] and lengths."""
        x, length = self.pre_encode(features, length)
        positions = relative_positions(x.shape[1], self.width, x.device).to(x.dtype)
        keep = valid(length, x.shape[1])
        x = self.dropout(x)
        for layer in self.layers:
            x = layer(x, positions, keep)
        return x, length


class Prediction(nn.Module):
    """The prediction network: an embedding whose last row, the blank's, is zero, then one LSTM."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed = nn.Embedding(shape.vocabulary + 1, shape.prediction, padding_idx=shape.vocabulary)
        self.lstm = nn.LSTM(shape.prediction, shape.prediction, 1, batch_first=True)
        self.dropout = nn.Dropout(2 * shape.dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens int [batch, U]: outputs [batch, U + 1, prediction], the first after the blank alone."""
        start = torch.full_like(tokens[:, :1], self.embed.num_embeddings - 1)
        return self.lstm(self.dropout(self.embed(torch.cat([start, tokens], 1))))[0]


class Joint(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.enc = nn.Linear(shape.width, shape.joint)
        self.pred = nn.Linear(shape.prediction, shape.joint)
        self.out = nn.Linear(shape.joint, shape.vocabulary + 1 + len(shape.durations))
        self.dropout = nn.Dropout(2 * shape.dropout)

    def forward(self, frames: Tensor, outputs: Tensor) -> Tensor:
        """[batch, T, width] and [batch, U + 1, prediction] to logits [batch, T, U + 1, V + 1 + durations]."""
        mixed = torch.relu(self.enc(frames)[:, :, None] + self.pred(outputs)[:, None])
        return self.out(self.dropout(mixed))


class Network(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.encoder = Encoder(shape)
        self.ctc = nn.Conv1d(shape.width, shape.vocabulary + 1, 1)
        self.prediction = Prediction(shape)
        self.joint = Joint(shape)
