"""The audio tower of Qwen's language models: log-mel frames to embeddings that one reads, 13 a second.

Each second goes through the convolutions by itself; rows attend to one another within windows counted from
the start. Rows of all utterances lie side by side, without padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.nn.activations import gelu
from worker.models.attention.blocks import AttentionNames, MlpNames, Tensors
from worker.models.attention.layers import (
    Product,
    arrays_of,
    attend_windows,
    by_rows,
    halve_patches,
    pack,
    pack_for_frames,
    sine_positions,
)
from worker.models.turns import give_way
from worker.models.weights import Shape, linear_shapes, norm_shapes

CHUNK_FRAMES = 100  # of mel, which the convolutions take by themselves
CHUNK_ROWS = 13  # that they make of them
TOWER = "model.audio_tower"
PROJECTOR = "model.multi_modal_projector"
CONVOLUTIONS = ("conv2d1", "conv2d2", "conv2d3")
ATTENTION = AttentionNames(
    "self_attn_layer_norm", *(f"self_attn.{way}_proj" for way in ("q", "k", "v", "out"))
)
MLP = MlpNames("final_layer_norm", "fc1", "fc2")
# Their layers' outputs are kept this far within float16's range (transformers, Qwen3ASRAudioEncoderLayer).
FLOAT16_MAX = 64504.0
# Through the convolutions. A second's patches take 14 MB; beyond 32 MB malloc gives fresh memory each time.
SECONDS_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class AudioSizes:
    """Of the audio encoder."""

    num_mel_bins: int = 128
    encoder_layers: int = 24
    encoder_attention_heads: int = 16
    encoder_ffn_dim: int = 4096
    d_model: int = 1024
    output_dim: int = 3584
    n_window_infer: int = 800
    downsample_hidden_size: int = 480

    @property
    def bands(self) -> int:
        """Bands that three convolutions of stride 2 leave."""
        return -(-self.num_mel_bins // 8)

    @property
    def window(self) -> int:
        """Rows of full seconds that attend to one another."""
        return self.n_window_infer // CHUNK_FRAMES * CHUNK_ROWS


def rows_of(frames: int) -> int:
    """Rows that the encoder makes of so many mel frames."""
    seconds, rest = divmod(frames, CHUNK_FRAMES)
    return seconds * CHUNK_ROWS + -(-rest // 8)


def tower_shapes(sizes: AudioSizes) -> dict[str, Shape]:
    """The tensors of encoder and projector, as transformers names them."""
    width, channels = sizes.d_model, sizes.downsample_hidden_size
    shapes: dict[str, Shape] = {
        f"{TOWER}.conv_out.weight": (width, channels * sizes.bands),
        **norm_shapes(f"{TOWER}.ln_post", width),
        **linear_shapes(f"{PROJECTOR}.linear_1", width, width),
        **linear_shapes(f"{PROJECTOR}.linear_2", sizes.output_dim, width),
    }
    for name, inputs in zip(CONVOLUTIONS, (1, channels, channels), strict=True):
        shapes[f"{TOWER}.{name}.weight"] = (channels, inputs, 3, 3)
        shapes[f"{TOWER}.{name}.bias"] = (channels,)
    for layer in range(sizes.encoder_layers):
        block = f"{TOWER}.layers.{layer}"
        shapes |= ATTENTION.shapes(block, width) | MLP.shapes(block, width, sizes.encoder_ffn_dim)
    return shapes


class AudioEncoder:
    """Convolutions as matrix products, sinusoids, pre-norm blocks, a norm, the projector."""

    def __init__(self, sizes: AudioSizes, tensors: dict[str, mx.array], dtype: mx.Dtype) -> None:
        self.sizes, self.dtype = sizes, dtype
        source = Tensors(tensors, dtype)
        channels = sizes.downsample_hidden_size
        # [out, in, 3 bands, 3 frames] as [out, 3 frames * 3 bands * in].
        first, *others = (
            Product(source.array(f"{TOWER}.{name}.weight").transpose(0, 3, 2, 1).reshape(channels, -1))
            for name in CONVOLUTIONS
        )
        self.convolutions = list(
            zip(
                (first, *map(pack_for_frames, others)),
                (source.array(f"{TOWER}.{name}.bias") for name in CONVOLUTIONS),
                strict=True,
            )
        )
        # [d, channel, band] as [d, band * channel]: our bands lie slow.
        out = source.array(f"{TOWER}.conv_out.weight").reshape(sizes.d_model, -1, sizes.bands)
        self.out = pack_for_frames(Product(out.swapaxes(1, 2).reshape(sizes.d_model, -1)))
        self.positions = sine_positions(CHUNK_ROWS, sizes.d_model).astype(dtype)
        heads = sizes.encoder_attention_heads
        self.layers = [
            source.encoder_block(f"{TOWER}.layers.{layer}", ATTENTION, MLP, heads)
            for layer in range(sizes.encoder_layers)
        ]
        self.norm = source.norm(f"{TOWER}.ln_post")
        widen, narrow = source.linear(f"{PROJECTOR}.linear_1"), source.linear(f"{PROJECTOR}.linear_2")
        self.projector = (pack(Product(widen.weight)), widen.bias, pack(narrow))

    @property
    def parameters(self) -> list[mx.array]:
        """Every array, to evaluate or to count."""
        return arrays_of(self.convolutions, self.out, self.positions, self.layers, self.norm, self.projector)

    def __call__(self, mels: Sequence[NDArray[np.float32]]) -> list[mx.array]:
        """Utterances of [frames, mels] float32 -> their embeddings [rows, output_dim]."""
        hidden = self.hidden(mels)
        widen, bias, narrow = self.projector
        return [narrow(gelu(widen(each), bias)) for each in hidden]

    def hidden(self, mels: Sequence[NDArray[np.float32]]) -> list[mx.array]:
        """Utterances of [frames, mels] float32 -> their rows behind the last norm, [rows, d_model]."""
        counts = [rows_of(len(mel)) for mel in mels]
        x = mx.concatenate([self._convolve(mel)[:count] for mel, count in zip(mels, counts, strict=True)])[
            None
        ]
        for attention, mlp in self.layers:
            fused = attention.fused(attention.norm(x))
            x = x + attention.out(
                attend_windows(fused, self.sizes.encoder_attention_heads, counts, self.sizes.window)
            )
            x = x + by_rows(mlp, x)
            if self.dtype == mx.float16:
                x = mx.clip(x, -FLOAT16_MAX, FLOAT16_MAX)
            give_way(x)
        x = self.norm(x)[0]
        return [x[end - count : end] for count, end in zip(counts, np.cumsum(counts).tolist(), strict=True)]

    def _convolve(self, mel: NDArray[np.float32]) -> mx.array:
        """[frames, mels] -> [seconds * 13, d], with positions within each second; zeros, which are no
        silence, behind the last frame."""
        missing = -len(mel) % CHUNK_FRAMES
        seconds = np.pad(mel, [(0, missing), (0, 0)]).reshape(-1, CHUNK_FRAMES, mel.shape[1], 1)
        parts = []
        for first in range(0, len(seconds), SECONDS_AT_ONCE):
            x = mx.array(seconds[first : first + SECONDS_AT_ONCE]).astype(self.dtype)
            for product, bias in self.convolutions:
                x = gelu(product(halve_patches(x)), bias)
            x = self.out(x.reshape(*x.shape[:2], -1)) + self.positions
            parts.append(x.reshape(-1, x.shape[-1]))
            give_way(parts[-1])
        return mx.concatenate(parts)
