"""Sortformer's network: log-mel to subsampled frames, and a sequence of these to who speaks in each.

All of it computes in float32 on every device: in 16 bits the speaker cache would keep other frames. A network
belongs to the thread that loaded it. Paper: Park et al. 2024, "Sortformer: Seamless Integration of Speaker
Diarization and ASR by Bridging Timestamps and Tokens"; the parts and their names are NeMo 3.0.0's.
"""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from spool.errors import EngineError
from worker.models.attention.blocks import AttentionNames, MlpNames, Tensors
from worker.models.attention.layers import Linear, Norm, SelfAttention, attend_full
from worker.models.conformer.encoder import ConformerEncoder
from worker.models.front_ends.log_mel import FeatureExtractor
from worker.models.sortformer.config import SortformerConfig
from worker.models.sortformer.steps import ChunkOutput, ChunkStep, Floats, MelStep, NormaliseStep, Step
from worker.models.weights import Shape, linear_shapes, parameter_bytes

LAYERS = "transformer_encoder.layers"
MODULES = "sortformer_modules"
UNUSED = f"{MODULES}.hidden_to_spks"
"""Stored in every checkpoint; a rest of the model's training."""
WAYS = ("query_net", "key_net", "value_net", "out_projection")
ATTENTION = AttentionNames("layer_norm_1", *(f"first_sub_layer.{way}" for way in WAYS))
FEED_FORWARD = MlpNames("layer_norm_2", "second_sub_layer.dense_in", "second_sub_layer.dense_out", "relu")


def shapes_of(config: SortformerConfig) -> dict[str, Shape]:
    """The tensors beside the encoder's, by their names in the file."""
    width, inner = config.transformer.hidden_size, config.transformer.inner_size
    shapes = {
        **linear_shapes(f"{MODULES}.encoder_proj", width, config.encoder.d_model),
        **linear_shapes(f"{MODULES}.first_hidden_to_hidden", width, width),
        **linear_shapes(f"{MODULES}.single_hidden_to_spks", config.speakers, width),
        **linear_shapes(UNUSED, config.speakers, 2 * width),
    }
    for number in range(config.transformer.num_layers):
        layer = f"{LAYERS}.{number}"
        shapes |= ATTENTION.shapes(layer, width) | FEED_FORWARD.shapes(layer, width, inner)
    return shapes


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer of the transformer, its norms behind its parts."""

    attention: SelfAttention
    widen: Linear
    narrow: Linear
    norm: Norm

    def __call__(self, x: mx.array, heads: int) -> mx.array:
        """[1, T, d] -> [1, T, d]."""
        own = self.attention
        x = own.norm(x + own.out(attend_full(own.fused(x), heads)))
        return self.norm(x + self.narrow(mx.maximum(self.widen(x), 0)))


def _layer(source: Tensors, name: str, heads: int) -> _Layer:
    return _Layer(
        source.self_attention(name, ATTENTION, heads),
        source.linear(f"{name}.{FEED_FORWARD.widen}"),
        source.linear(f"{name}.{FEED_FORWARD.narrow}"),
        source.norm(f"{name}.{FEED_FORWARD.norm}"),
    )


class SortformerNetwork:
    """Front end, encoder, transformer and head of one model."""

    def __init__(
        self,
        config: SortformerConfig,
        encoder: ConformerEncoder,
        tensors: dict[str, mx.array],
        front_end: FeatureExtractor,
    ) -> None:
        """tensors: those of `shapes_of`, float32; they are taken out of it."""
        self.config = config
        self.size = parameter_bytes(encoder) + sum(value.nbytes for value in tensors.values())
        self._encoder, self._front_end = encoder, front_end
        self._heads = config.transformer.num_attention_heads
        source = Tensors(tensors, mx.float32)
        layers = range(config.transformer.num_layers)
        self._layers = [_layer(source, f"{LAYERS}.{number}", self._heads) for number in layers]
        self._projection = source.linear(f"{MODULES}.encoder_proj")
        self._hidden = source.linear(f"{MODULES}.first_hidden_to_hidden")
        self._speakers = source.linear(f"{MODULES}.single_hidden_to_spks")

    def run(self, samples: Floats, step: Step) -> Floats | ChunkOutput:
        """As `worker.diarization.base.Network.run`. Raises EngineError where the output is no numbers."""
        if isinstance(step, MelStep):
            return np.array(self._mel(samples * np.float32(step.gain), step))
        if isinstance(step, NormaliseStep):
            return np.array(self._front_end.normalise(mx.array(step.mel)))
        rows = self.subsample(self._mel(samples, step) if step.mel is None else mx.array(step.mel))
        heard = mx.concatenate([mx.array(step.memory), rows]) if len(step.memory) else rows
        output = ChunkOutput(np.array(rows), np.array(self.probabilities(self.project(heard))))
        if not np.isfinite(output.probabilities).all():
            raise EngineError("The diarization model's probabilities are no finite numbers.")
        return output

    def frames(self, samples: Floats, step: Step) -> int:  # noqa: ARG002 - the step says it all
        heard = len(step.memory) if isinstance(step, ChunkStep) else 0
        return step.frames // self.config.encoder.subsampling_factor + heard

    def _mel(self, samples: Floats, step: MelStep | ChunkStep) -> mx.array:
        return self._front_end.log_mel(samples)[step.lead : step.lead + step.frames]

    def subsample(self, mel: mx.array) -> mx.array:
        """Mel frames [n, mels] -> subsampled frames [T, d_model], zeros beyond both ends."""
        return self._encoder.pre_encode(mel[None], mx.array([mel.shape[0]]))[0]

    def project(self, rows: mx.array) -> mx.array:
        """Subsampled frames of one sequence [T, d_model] -> as the transformer hears them, [T, hidden]."""
        return self._projection(self._encoder.encode_rows(rows[None]))[0]

    def probabilities(self, projected: mx.array) -> mx.array:
        """[T, hidden] -> [T, speakers], each in 0 … 1."""
        x = projected[None]
        for layer in self._layers:
            x = layer(x, self._heads)
        x = mx.maximum(self._hidden(mx.maximum(x, 0)), 0)
        return mx.sigmoid(self._speakers(x))[0]
