"""A loaded Granite Speech 5 TurboCTC: names of the network's parameters, and the head that a search drives.

Knows neither chunks nor jobs. A model belongs to the thread that made it.
"""

import re
from collections.abc import Mapping
from functools import cached_property

import mlx.core as mx
from mlx import nn

from spool.errors import InvalidRequest
from worker.models.base import BatchCost, Capabilities, HeadName
from worker.models.conformer.encoder import AttContext
from worker.models.conformer.frames import FrameEncoder
from worker.models.conformer.linear import Linear
from worker.models.conformer.streaming import EncoderStream
from worker.models.frame_model import FrameModel
from worker.models.front_ends.delta_mel import DeltaMel
from worker.models.granite.config import GraniteConfig
from worker.models.granite.encoder import GraniteEncoder
from worker.models.heads.ctc import CtcHead
from worker.models.tokenizers.bytes import WordByteTokenizer
from worker.models.weights import NameMap

GRANITE = NameMap(
    ignored=re.compile(r"num_batches_tracked$|attention_dists$|^ctc_head\."),
    renames=(
        (r"^encoder\.pre_encode\.out\.", "encoder.input_linear."),
        (r"\.self_attn\.linear_([qkv])\.", r".self_attn.\1_proj."),
        (r"\.self_attn\.linear_out\.", ".self_attn.o_proj."),
        (r"\.conv\.pointwise_conv", ".conv.pointwise_lin"),
        (r"\.conv\.batch_norm\.", ".conv.norm."),
    ),
    matrices=True,
)


class GraniteNetwork(nn.Module):
    """Encoder, and a CTC head where it is not the encoder's own output layer."""

    def __init__(self, config: GraniteConfig) -> None:
        super().__init__()
        self.encoder = GraniteEncoder(config.encoder, config.vocabulary)
        if not config.is_tied:
            self.ctc_head = Linear(config.encoder.d_model, config.vocabulary, exact=True)

    def label(self, frames: mx.array) -> mx.array:
        """Encoder frames [..., d_model] -> logits [..., V]."""
        logits: mx.array = self.ctc_head(frames) if "ctc_head" in self else self.encoder.out(frames)
        return logits


class GraniteModel(FrameModel):
    """Encoder and head of one model."""

    def __init__(
        self,
        config: GraniteConfig,
        network: GraniteNetwork,
        tokenizer: WordByteTokenizer,
        dtype: mx.Dtype,
        *,
        name: str,
        files: Mapping[str, str],
    ) -> None:
        frames = FrameEncoder(config.features, network.encoder, dtype)
        super().__init__(network, frames, name=name, files=files, frame_seconds=config.frame_seconds)
        self.config, self.tokenizer = config, tokenizer

    @cached_property
    def heads(self) -> Mapping[HeadName, CtcHead]:
        label, blank = self.network.label, self.config.blank
        return {"ctc": CtcHead(label, self.config.vocabulary, blank_unit=blank, in_place=True)}

    @cached_property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            decoders=frozenset({"greedy", "beam"}),
            languages=frozenset(),
            tasks=frozenset({"transcribe"}),
            timing="frames",
            options=frozenset({"language_model", "phrases", "alternatives", "lattice"}),
            chunking=self.chunking,
            family="granite",
        )

    def cost(self, samples: int, beam: int = 1) -> BatchCost:  # noqa: ARG002 - the encoder is what counts
        """As `SpeechModel.cost`: what stands between the matrices of the first layer, and the labels of the
        frames that are left at the end."""
        config, frames = self.config.encoder, self.front_end.frames_of(samples)
        layer = (
            2 * config.inner + 8 * config.d_model + 4 * config.conv_width + 3 * config.n_heads * config.block
        )
        left = self.frames_of(samples)
        return BatchCost(left, 2 * self.dtype.size * frames * layer + 16 * left * self.config.vocabulary)

    @property
    def front(self) -> DeltaMel:
        """As `ModelWithFront.front`: all of it."""
        return self.config.features

    def open_stream(self, att_context: AttContext | None = None) -> EncoderStream:  # noqa: ARG002 - there is none
        raise InvalidRequest(f"{self.name} cannot be run chunk by chunk: it hears whole blocks of frames")
