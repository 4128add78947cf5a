"""What models have in common whose attention decoder goes over a Conformer's frames and is told by a prompt
what to write: Canary, Cohere Transcribe.

Knows neither chunks nor jobs. A model belongs to the thread that made it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.models.artifacts.safetensors import Weights
from worker.models.attention.model import DecodingModel
from worker.models.attention.nemo_decoder import TABLE, DecoderParts, NemoDecoder
from worker.models.attention.rules import NoRules
from worker.models.attention.state import EncodedWindow
from worker.models.base import BatchCost, PreparedRequest
from worker.models.base_attention import EndRule, Prompt, Question
from worker.models.conformer.config import EncoderConfig
from worker.models.conformer.encoder import ConformerEncoder, EncoderPart
from worker.models.conformer.frames import BYTES_A_FRAME, FrameEncoder
from worker.models.front_ends.log_mel import FeatureExtractor
from worker.models.tokenizers.special import SpecialTokens
from worker.models.weights import NEMO, NameMap, install, parameter_bytes

# Without word times nobody can say which chunk has a word of the overlap: there is next to none.
UNTIMED_OVERLAP = 0.1


class ConformerAttentionModel(DecodingModel):
    """Encoder, decoder head and tokenizer of one model. A family adds `prepare`, `limit` and `capabilities`,
    and what else it can tell."""

    head: NemoDecoder

    def __init__(
        self,
        frames: FrameEncoder[FeatureExtractor],
        head: NemoDecoder,
        tokenizer: SpecialTokens,
        end_rule: EndRule,
        *,
        rows: int,
        name: str,
        files: Mapping[str, str],
        frame_seconds: float,
    ) -> None:
        """rows: tokens that the head knows."""
        self.frames, self.head, self.tokenizer, self.end_rule = frames, head, tokenizer, end_rule
        self.name, self.files, self.frame_seconds = name, dict(files), frame_seconds
        self.dtype = frames.dtype
        self.rules = NoRules(rows)
        self._rows = rows
        mx.eval(head.parameters)

    def limit(self, frames: int, prompt: int) -> int:
        """The most tokens of an answer to so many encoder frames behind a prompt of so many tokens."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Bytes of the weights in memory, the aligner's among them."""
        own = parameter_bytes(self.frames.encoder) + sum(array.nbytes for array in self.head.parameters)
        return own + (self.aligner.size if self.aligner is not None else 0)

    def frames_in(self, samples: int) -> int:
        return self.frames.frames_of(samples)

    def cost(self, samples: int, beam: int = 1) -> BatchCost:
        """As `SpeechModel.cost`: the encoder's way, cross keys and values, and those of the hypotheses with
        their logits."""
        frames = self.frames_in(samples)
        tokens = min(self.head.max_tokens, self.limit(frames, 0))
        per_token = self.head.bytes_a_token
        own = beam * (tokens * per_token + 16 * self._rows)
        encoder = self.frames.front_end.frames_of(samples) * BYTES_A_FRAME
        return BatchCost(frames, encoder + frames * per_token + own)

    def encode(self, samples: Sequence[NDArray[np.float32]]) -> list[EncodedWindow]:
        """Windows of any lengths, each [N] float32 at 16 kHz in -1 ... 1, with cross keys and values.

        A CPU takes them one by one: the bits of a product depend on its number of rows there.
        """
        encoded = self.frames.encode(samples)
        windows = self.head.windows(encoded.frames, encoded.lengths, masked=True)
        for window in windows:
            mx.eval(window.batch.frames, window.batch.cross)
        return windows

    def writes_times(self, prompt: Sequence[int]) -> bool:  # noqa: ARG002 - a family that can overrides it
        """Whether a prompt asks for times among the tokens."""
        return False

    def ask(
        self,
        encoded: Sequence[EncodedWindow],
        prepared: Sequence[PreparedRequest],
        languages: Sequence[str | None],  # noqa: ARG002 - the model detects none
    ) -> list[Question]:
        """As `AttentionModel.ask`: one prompt a window."""
        questions = []
        for window, request in zip(encoded, prepared, strict=True):
            tokens = request.previous
            most = min(self.head.max_tokens - len(tokens), self.limit(window.length, len(tokens)))
            timed, language = self.writes_times(tokens), request.request.pinned
            prompt = Prompt(tokens, timestamps=timed, limit=max(most, 1), language=language)
            questions.append(Question((prompt,)))
        return questions

    def is_text(self, token: int) -> bool:
        return self.tokenizer.is_text(token)


def install_parts(
    config: EncoderConfig,
    parts: DecoderParts,
    weights: Weights,
    dtype: mx.Dtype,
    source: str,
    names: NameMap = NEMO,
) -> tuple[ConformerEncoder, dict[str, mx.array]]:
    """A file's encoder, and its decoder's tensors by NeMo's names. Raises WeightsMismatch."""
    network = EncoderPart(config)
    # As transformers does, whatever the configuration says of ties.
    if names.find(TABLE, weights.shapes) is not None:
        parts = replace(parts, tied=False)
    tensors = install(network, weights, dtype, source, parts.shapes, names)
    network.encoder.fold(dtype)
    network.eval()
    mx.eval(network.parameters())
    return network.encoder, tensors
