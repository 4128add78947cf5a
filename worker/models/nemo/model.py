"""A loaded FastConformer and the heads that a search drives.

Knows nothing of files (`load`) nor of search (`worker.decode`). A model belongs to the thread that made it.
"""

from collections.abc import Mapping
from functools import cached_property

import mlx.core as mx
from mlx import nn

from spool.errors import InvalidRequest
from worker.models.base import BatchCost, Capabilities, HeadName
from worker.models.conformer.encoder import AttContext, ConformerEncoder
from worker.models.conformer.frames import BYTES_A_FRAME, FrameEncoder
from worker.models.conformer.streaming import EncoderStream
from worker.models.frame_model import FrameModel
from worker.models.front_ends.log_mel import FeatureExtractor, HostSpectra
from worker.models.front_ends.mel_stream import MelStream
from worker.models.heads.ctc import CtcDecoder, CtcHead
from worker.models.heads.transducer import JointNetwork, PredictionNetwork, Transducer
from worker.models.nemo.config import ModelConfig
from worker.models.tokenizers.pieces import Tokenizer


class Network(nn.Module):
    """Every part with weights, under the names that checkpoints give them: `decoder` is the prediction
    network of a transducer or else the CTC head; a hybrid's CTC head is `ctc_decoder`."""

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        d_model = config.encoder.d_model
        self.encoder = ConformerEncoder(config.encoder)
        self.decoder: PredictionNetwork | CtcDecoder
        if config.prediction is not None and config.joint is not None:
            self.decoder = PredictionNetwork(config.prediction, vocabulary_size)
            self.joint = JointNetwork(config.joint, d_model, config.prediction.pred_hidden, vocabulary_size)
        if config.is_hybrid:
            self.ctc_decoder = CtcDecoder(d_model, vocabulary_size)
        elif config.has_ctc:
            self.decoder = CtcDecoder(d_model, vocabulary_size)


FRAME_OPTIONS = frozenset({"language_model", "phrases", "alternatives", "lattice"})


class NemoModel(FrameModel):
    """One loaded model. `files` are SHA-256 by role."""

    front_end: FeatureExtractor

    def __init__(
        self,
        config: ModelConfig,
        network: Network,
        tokenizer: Tokenizer,
        features: FeatureExtractor,
        *,
        name: str,
        files: Mapping[str, str],
        dtype: mx.Dtype,
    ) -> None:
        frames = FrameEncoder(features, network.encoder, dtype)
        super().__init__(network, frames, name=name, files=files, frame_seconds=config.frame_seconds)
        self.config, self.tokenizer = config, tokenizer

    @cached_property
    def heads(self) -> Mapping[HeadName, Transducer | CtcHead]:
        """What a search may drive, by name: of "tdt", "rnnt", "ctc"."""
        heads: dict[HeadName, Transducer | CtcHead] = {}
        if self.transducer is not None:
            heads["tdt" if self.transducer.durations else "rnnt"] = self.transducer
        if self.ctc is not None:
            heads["ctc"] = self.ctc
        return heads

    @cached_property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            decoders=frozenset({"greedy", "beam"}),
            languages=frozenset(),
            tasks=frozenset({"transcribe"}),
            timing="frames",
            options=FRAME_OPTIONS,
            chunking=self.chunking,
            att_contexts=self.config.encoder.att_contexts if self.config.encoder.is_chunked else (),
            family="nemo",
            # Features normalised over a recording are not known before its end.
            streams=self.config.encoder.streams and self.config.preprocessor.normalize is None,
        )

    def cost(self, samples: int, beam: int = 1) -> BatchCost:  # noqa: ARG002 - the encoder is what counts
        return BatchCost(self.frames_of(samples), self.front_end.frames_of(samples) * BYTES_A_FRAME)

    @cached_property
    def transducer(self) -> Transducer | None:
        """Prediction network and joint, or None on a CTC model."""
        if self.config.joint is None:
            return None
        decoder = self.network.decoder
        assert isinstance(decoder, PredictionNetwork)
        joint, most = self.config.joint, self.config.joint.max_symbols
        return Transducer(decoder, self.network.joint, joint, self.tokenizer.blank, max_symbols=most)

    @cached_property
    def ctc(self) -> CtcHead | None:
        """The CTC head, or None where the model has none."""
        if not self.config.has_ctc:
            return None
        head = self.network.ctc_decoder if self.config.is_hybrid else self.network.decoder
        assert isinstance(head, CtcDecoder)
        return CtcHead(head, self.tokenizer.blank)

    @property
    def front(self) -> HostSpectra | None:
        return self.front_end.host_spectra

    def open_stream(self, att_context: AttContext | None = None) -> EncoderStream:
        context = att_context or self.config.encoder.att_context_size
        if not self.capabilities.streams or context not in self.config.encoder.att_contexts:
            raise InvalidRequest(f"{self.name} cannot be run chunk by chunk with att_context {context}")
        return self._steps.open(MelStream(self.front_end), context)
