"""A loaded phoneme recogniser: its parameters from the file's tensors, its symbols as words.

The features and every sum are float32 on every device: the model is small, and its probabilities are compared
with thresholds. A model belongs to the thread that made it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import mlx.core as mx
import mlx.utils
import numpy as np
from mlx import nn
from numpy.typing import NDArray

from spool.errors import InvalidRequest
from worker.models.artifacts.hama import HamaTensors
from worker.models.base import BatchCost, Capabilities, HeadName, Independent, TokenSpan
from worker.models.conformer.config import EncoderConfig
from worker.models.conformer.encoder import ConformerEncoder
from worker.models.conformer.frames import FrameEncoder
from worker.models.frame_model import FrameModel
from worker.models.front_ends.kernel_mel import HOP, KernelMel
from worker.models.hama.config import (
    BLOCKS,
    FRONT,
    OUTPUT,
    WORD_BOUNDARY,
    encoder_of,
    expected_shapes,
    friendly_names,
)
from worker.models.heads.ctc import CtcDecoder, CtcHead
from worker.models.tokenizers.pieces import longest_pieces
from worker.models.weights import check_shapes

WINDOWS = Independent(aim=15.0, max=24.0, overlap=2.0)
"""Attention sees the whole window: windows of 24 s agree with one pass in nearly all frames, those of the
package's 30 s cut would lose the rest."""
NORMS = {
    "norm_feed_forward1": "ffn1.norm",
    "norm_self_att": "attn_norm",
    "norm_conv": "conv.norm",
    "norm_feed_forward2": "ffn2.norm",
    "norm_out": "norm",
}
"""Our layer norms, and what a block calls them."""
_NOTHING = re.compile(r"$^")
CONTROL = frozenset({"<pad>", "<sos>", "<eos>", "<unk>", WORD_BOUNDARY})


@dataclass(frozen=True)
class PhonemeTokenizer:
    """Symbols of the International Phonetic Alphabet by id; words end at the boundary."""

    pieces: tuple[str, ...]

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {piece: number for number, piece in enumerate(self.pieces) if piece not in CONTROL}

    def encode(self, text: str) -> list[int]:
        """The symbols of a text in IPA, the longest that fit from the left. Raises InvalidRequest."""
        tokens: list[int] = []
        for word in text.split():
            symbols = longest_pieces(word, self._ids)
            if symbols is None:
                raise InvalidRequest(f"{text!r} holds what the model has no symbol for")
            tokens += [self.pieces.index(WORD_BOUNDARY), *symbols] if tokens else symbols
        return tokens

    def decode(self, ids: Sequence[int]) -> str:
        """The symbols, words apart. Raises IndexError outside the symbols."""
        return " ".join(span.text for span in self.words(ids))

    def words(self, tokens: Sequence[int], language: str | None = None) -> list[TokenSpan]:  # noqa: ARG002
        """The symbols between boundaries."""
        spans: list[TokenSpan] = []
        text, first = "", 0
        for at, token in enumerate([*tokens, -1]):
            if token == -1 or self.pieces[token] == WORD_BOUNDARY:
                if text:
                    spans.append(TokenSpan(text, first, at))
                text = ""
                continue
            if not 0 <= token < len(self.pieces):
                raise IndexError(f"symbol {token} is outside the {len(self.pieces)} symbols")
            first = first if text else at
            text += "" if self.pieces[token] in CONTROL else self.pieces[token].strip()
        return spans


class HamaNetwork(nn.Module):
    """Encoder and CTC head."""

    def __init__(self, config: EncoderConfig, labels: int) -> None:
        super().__init__()
        self.encoder = ConformerEncoder(config)
        self.decoder = CtcDecoder(config.d_model, labels)


class HamaModel(FrameModel):
    """A phoneme recogniser with a CTC head; its tokens are phonetic symbols."""

    def __init__(
        self,
        network: HamaNetwork,
        front_end: KernelMel,
        tokenizer: PhonemeTokenizer,
        *,
        name: str,
        files: Mapping[str, str],
    ) -> None:
        frames = FrameEncoder(front_end, network.encoder, mx.float32)
        seconds = network.encoder.config.subsampling_factor * HOP / 16_000
        super().__init__(network, frames, name=name, files=files, frame_seconds=seconds)
        self.tokenizer = tokenizer

    @property
    def chunking(self) -> Independent:
        return WINDOWS

    @cached_property
    def heads(self) -> Mapping[HeadName, Any]:
        return {"ctc": CtcHead(self.network.decoder, len(self.tokenizer.pieces))}

    @cached_property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            decoders=frozenset({"greedy", "beam"}),
            languages=frozenset(),
            tasks=frozenset({"transcribe"}),
            timing="frames",
            options=frozenset(),
            chunking=self.chunking,
            family="hama",
        )

    def cost(self, samples: int, beam: int = 1) -> BatchCost:  # noqa: ARG002 - a beam takes little beside
        """As `SpeechModel.cost`: the layers' arrays, and the scores of attention."""
        config, frames = self.frames.encoder.config, self.frames_of(samples)
        layers = 4 * config.feed_forward_size + 8 * config.d_model + config.n_heads * frames
        return BatchCost(frames, 4 * frames * layers)

    @property
    def front(self) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
        """As `ModelWithFront.front`: the features."""
        front_end: KernelMel = self.frames.front_end
        return front_end.log_mel


def build_hama(
    weights: HamaTensors, symbols: tuple[str, ...], *, name: str, source: str, files: Mapping[str, str]
) -> HamaModel:
    """The model of these weights. Raises WeightsMismatch, ModelUnreadable."""
    config = encoder_of(weights.shapes, source)
    names = friendly_names(weights.shapes, config.n_layers)
    found = {friendly: weights.shapes[own] for friendly, own in names.items()}
    surplus = {own: shape for own, shape in weights.shapes.items() if own not in names.values()}
    check_shapes(expected_shapes(config, len(symbols) + 1), found | surplus, _NOTHING, source)
    tensors = {friendly: weights.tensors[own] for friendly, own in names.items()}
    network = HamaNetwork(config, len(symbols))
    parameters = [(key, mx.array(value)) for key, value in _parameters(tensors, config.n_layers).items()]
    network.update(mlx.utils.tree_unflatten(parameters))
    network.encoder.fold(mx.float32)
    network.eval()
    mx.eval(network.parameters())
    real, imaginary, filters = (tensors[each] for each in FRONT)
    front_end = KernelMel(real[:, 0], imaginary[:, 0], filters)
    return HamaModel(network, front_end, PhonemeTokenizer(symbols), name=name, files=files)


def _parameters(tensors: Mapping[str, NDArray[np.float32]], layers: int) -> dict[str, NDArray[np.float32]]:
    """The network's parameters, by its own names."""
    stem = tensors["stem.weight"].swapaxes(1, 2)
    found = {
        "encoder.pre_encode.out.weight": stem.reshape(len(stem), -1),
        "encoder.pre_encode.out.bias": tensors["stem.bias"],
        "decoder.decoder_layers.0.weight": tensors[f"{OUTPUT}.weight"][:, :, 0],
        "decoder.decoder_layers.0.bias": tensors[f"{OUTPUT}.bias"],
    }
    for layer in range(layers):
        block, ours = f"{BLOCKS}.{layer}", f"encoder.layers.{layer}"
        for own, part in (("feed_forward1", "ffn1"), ("feed_forward2", "ffn2")):
            for number in (1, 2):
                linear = f"{ours}.{own}.linear{number}"
                found[f"{linear}.weight"] = tensors[f"{block}.{part}.fc{number}.weight"].T
                found[f"{linear}.bias"] = tensors[f"{block}.{part}.fc{number}.bias"]
        for own, part in NORMS.items():
            for kind in ("weight", "bias"):
                found[f"{ours}.{own}.{kind}"] = tensors[f"{block}.{part}.{kind}"]
        weights = np.split(tensors[f"{block}.attn.qkv.weight"].T, 3)
        biases = np.split(tensors[f"{block}.attn.in_proj_bias"], 3)
        for way, weight, bias in zip("qkv", weights, biases, strict=True):
            found[f"{ours}.self_attn.linear_{way}.weight"] = weight
            found[f"{ours}.self_attn.linear_{way}.bias"] = bias
        found[f"{ours}.self_attn.linear_out.weight"] = tensors[f"{block}.attn.out.weight"].T
        found[f"{ours}.self_attn.linear_out.bias"] = tensors[f"{block}.attn.out_proj.bias"]
        for number in (1, 2):
            pointwise = tensors[f"{block}.conv.pointwise{number}.weight"]
            found[f"{ours}.conv.pointwise_conv{number}.weight"] = pointwise[:, :, 0]
            found[f"{ours}.conv.pointwise_conv{number}.bias"] = tensors[
                f"{block}.conv.pointwise{number}.bias"
            ]
        depthwise = f"{block}.conv.depthwise"
        found[f"{ours}.conv.depthwise_conv.weight"] = tensors[f"{depthwise}.weight"].swapaxes(1, 2)
        found[f"{ours}.conv.depthwise_conv.bias"] = tensors[f"{depthwise}.bias"]
    return found
