"""A loaded U2 or U2++ model: WeNet's names of the network's parameters, and the heads that a search drives.

Knows neither chunks nor jobs. A model belongs to the thread that made it.
"""

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from numpy.typing import NDArray

from spool.errors import InvalidRequest
from worker.models.artifacts.grouped import bits_of
from worker.models.artifacts.tensors import Weights
from worker.models.base import BatchCost, Capabilities, HeadName
from worker.models.conformer.encoder import AttContext, ConformerEncoder
from worker.models.conformer.frames import FrameEncoder
from worker.models.conformer.streaming import EncoderStream
from worker.models.frame_model import FrameModel
from worker.models.front_ends.filter_bank import FilterBank, FilterBankStream, filter_bank
from worker.models.heads.blank_first import CtcOutput, Joint, LstmPredictor, joint_config
from worker.models.heads.ctc import CtcHead
from worker.models.heads.transducer import Transducer
from worker.models.tokenizers.units import UnitTokenizer
from worker.models.weights import NameMap, install
from worker.models.wenet.config import WenetConfig
from worker.models.wenet.decoder import WenetDecoder, WenetHead, decoder_of, shapes_of

LIVE_CONTEXT = (128, 15)
"""Chunks of 16 frames, as WeNet's runtime has them, and 8 of them behind."""
MAX_SYMBOLS = 64  # labels of a frame at most, as WeNet's greedy search has it

WENET = NameMap(
    ignored=re.compile(r"\.pe$|\.concat_linear\.|\.num_batches_tracked$"),
    renames=(
        (r"^encoder\.layers\.", "encoder.encoders."),
        (r"\.pre_encode\.out\.", ".embed.out.0."),
        (r"\.pre_encode\.", ".embed."),
        (r"\.feed_forward1\.linear", ".feed_forward_macaron.w_"),
        (r"\.feed_forward2?\.linear", ".feed_forward.w_"),
        (r"\.norm_feed_forward1\.", ".norm_ff_macaron."),
        (r"\.norm_feed_forward2\.", ".norm_ff."),
        (r"\.norm_self_att\.", ".norm_mha."),
        (r"\.norm_out\.", ".norm_final."),
        (r"\.conv\.batch_norm\.", ".conv_module.norm."),
        (r"^(encoder\.encoders\.\d+)\.conv\.", r"\1.conv_module."),
        (r"^predictor\.prediction\.dec_rnn\.lstm", "predictor.rnn"),
        (r"^predictor\.prediction\.", "predictor."),
        (r"^joint\.(enc|pred)\.", r"joint.\1_ffn."),
        (r"^joint\.joint_net\.2\.", "joint.ffn_out."),
    ),
    otherwise=((r"^encoder\.embed\.out\.0\.", "encoder.embed.linear."),),
)


class WenetNetwork(nn.Module):
    """Encoder, CTC and transducer."""

    def __init__(self, config: WenetConfig) -> None:
        super().__init__()
        width, sizes = config.encoder.d_model, config.transducer
        self.encoder = ConformerEncoder(config.encoder)
        self.ctc = CtcOutput(width, config.vocabulary)
        if sizes is not None:
            self.predictor = LstmPredictor(sizes, config.vocabulary)
            self.joint = Joint(sizes, width, config.vocabulary)

    def fold(self, dtype: mx.Dtype) -> None:
        """Fixes what inference makes of the weights; called once they are in."""
        self.encoder.fold(dtype)
        self.ctc.fold()
        if "joint" in self:
            self.predictor.fold()
            self.joint.fold()


class WenetModel(FrameModel):
    """Encoder and heads of one model."""

    def __init__(
        self,
        config: WenetConfig,
        network: WenetNetwork,
        decoders: list[WenetDecoder],
        tokenizer: UnitTokenizer,
        dtype: mx.Dtype,
        *,
        name: str,
        files: Mapping[str, str],
    ) -> None:
        frames = FrameEncoder(FilterBank(), network.encoder, dtype)
        super().__init__(network, frames, name=name, files=files, frame_seconds=config.frame_seconds)
        self.config, self.tokenizer, self._decoders = config, tokenizer, decoders

    @cached_property
    def heads(self) -> Mapping[HeadName, Any]:
        network, vocabulary, sizes = self.network, self.config.vocabulary, self.config.transducer
        ctc = CtcHead(network.ctc, vocabulary, sums=True, blank_unit=0)
        heads: dict[HeadName, Any] = {"ctc": ctc}
        if sizes is not None:
            parts = network.predictor, network.joint, joint_config(sizes), vocabulary
            heads["rnnt"] = Transducer(*parts, max_symbols=MAX_SYMBOLS, ctc=ctc)
        if self._decoders:
            left, *right = self._decoders
            head = WenetHead(ctc, left, right[0] if right else None, self.config.sos, heads.get("rnnt"))
            heads["ctc+attention"] = head
            if head.transducer is not None:
                heads["rnnt+attention"] = head
        return heads

    @cached_property
    def capabilities(self) -> Capabilities:
        streams = self.config.encoder.streams
        attends = {"rescore", "attention"} if self.config.decoders else set[str]()
        return Capabilities(
            decoders=frozenset({"greedy", "beam", "wfst"} | attends),
            languages=frozenset(),
            tasks=frozenset({"transcribe"}),
            timing="frames",
            options=frozenset({"language_model", "phrases"}),
            chunking=self.chunking,
            any_context=streams,
            streams=streams,
        )

    @property
    def size(self) -> int:
        """Bytes of the weights in memory."""
        decoders = (array for decoder in self._decoders for array in decoder.parameters)
        return super().size + sum(array.nbytes for array in decoders)

    def cost(self, samples: int, beam: int = 1) -> BatchCost:
        """As `SpeechModel.cost`: the subsampling's and the layers' arrays, and what the hypotheses of a beam
        take in the decoders."""
        config, frames, size = self.config.encoder, self.frames_of(samples), self.dtype.size
        bands = self.frames.encoder.pre_encode.frames_of(config.feat_in)
        patches = 9 * config.d_model * bands * 2
        layers = 4 * config.inner + 8 * config.d_model + config.n_heads * frames
        searched = beam * (4 * config.inner + self.config.vocabulary) if beam > 1 else 0
        return BatchCost(frames, frames * size * (patches + layers + searched))

    @property
    def front(self) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
        """As `ModelWithFront.front`: the filter bank."""
        return filter_bank

    def open_stream(self, att_context: AttContext | None = None) -> EncoderStream:
        context = att_context or LIVE_CONTEXT
        if not self.config.encoder.streams:
            raise InvalidRequest(
                f"att_context {context[0]},{context[1]}: a stream needs a model that was trained in chunks"
            )
        return self._steps.open(FilterBankStream(), context)


def build_wenet(
    config: WenetConfig,
    tokenizer: UnitTokenizer,
    weights: Weights,
    dtype: mx.Dtype,
    *,
    name: str,
    source: str,
    files: Mapping[str, str],
) -> WenetModel:
    """The model of these weights. Raises WeightsMismatch, ModelUnreadable."""
    network, beside = WenetNetwork(config), shapes_of(config)
    tensors = install(network, weights, dtype, source, beside, WENET, mx.float32)
    network.fold(dtype)
    network.eval()
    decoders = [decoder_of(sizes, config, tensors, dtype) for sizes in config.decoders]
    mx.eval(network.parameters(), [decoder.parameters for decoder in decoders])
    model = WenetModel(config, network, decoders, tokenizer, dtype, name=name, files=files)
    model.bits = bits_of(weights)
    return model
