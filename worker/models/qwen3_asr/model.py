"""A loaded Qwen3-ASR: samples of windows to embedded sound, and the language model that a search drives.

Knows neither chunks nor jobs. A model belongs to the thread that made it.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.models.attention.audio_tower import AudioEncoder, rows_of
from worker.models.attention.causal import CausalDecoder
from worker.models.attention.layers import is_cpu
from worker.models.attention.model import DecodingModel
from worker.models.attention.rules import NoRules
from worker.models.attention.windows import is_steady, judge_answer
from worker.models.base import BatchCost, Capabilities, Independent, PreparedRequest, refuse_unsupported
from worker.models.base_attention import (
    EndRule,
    HeardWindow,
    Opening,
    Prompt,
    PromptAnswer,
    Question,
    Window,
    WindowOutcome,
)
from worker.models.front_ends.whisper_mel import HOP, whole_log_mel
from worker.models.loaded import LoadedModel
from worker.models.qwen3_asr.config import QwenConfig
from worker.models.qwen3_asr.output import CODES, LANGUAGES, parse_output
from worker.models.qwen3_asr.tokenizer import QwenTokenizer
from worker.models.requests import DecodeRequest

FRAME_SECONDS = 1 / 13
SHORTEST = 8000  # samples; zeros behind a shorter utterance count as its own
# Without word times nobody can say which chunk has a word of the overlap: there is next to none.
CHUNKS = Independent(aim=30.0, max=40.0, overlap=0.1)


class QwenPart(LoadedModel):
    """Encoder, language model and tokenizer of one model."""

    def __init__(
        self,
        config: QwenConfig,
        encoder: AudioEncoder,
        head: CausalDecoder,
        tokenizer: QwenTokenizer,
        *,
        name: str,
        files: Mapping[str, str],
        bits: int | None = None,
    ) -> None:
        self.config, self.encoder, self.head, self.tokenizer = config, encoder, head, tokenizer
        self.name, self.files, self.bits = name, dict(files), bits
        self.dtype, self.frame_seconds = encoder.dtype, FRAME_SECONDS

    @property
    def size(self) -> int:
        return sum(array.nbytes for array in (*self.encoder.parameters, *self.head.parameters))

    def encode(self, samples: Sequence[NDArray[np.float32]]) -> list[mx.array]:
        """Windows of any lengths, each [N] float32 at 16 kHz in -1 ... 1, embedded: [rows, d] each.

        A CPU takes them one by one: the bits of a product depend on its number of rows there.
        """
        mels = self.config.audio.num_mel_bins
        features = [whole_log_mel(np.asarray(row, np.float32), mels, SHORTEST) for row in samples]
        size = 1 if is_cpu() else max(len(features), 1)
        encoded: list[mx.array] = []
        for first in range(0, len(features), size):
            encoded += self.encoder(features[first : first + size])
            mx.eval(encoded)
        return encoded


class QwenModel(QwenPart, DecodingModel):
    """A model that writes what is said."""

    @cached_property
    def rules(self) -> NoRules:
        return NoRules(self.config.text.vocab_size)

    @property
    def end_rule(self) -> EndRule:
        return EndRule(self.config.ends, "replaced", self.config.length_penalty)

    @property
    def chunking(self) -> Independent:
        return CHUNKS

    @cached_property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            decoders=frozenset({"greedy", "beam"}),
            languages=frozenset(LANGUAGES),
            tasks=frozenset({"transcribe"}),
            timing="none",
            options=frozenset({"language", "prompt", "hotwords"}),
            chunking=CHUNKS,
            detects=True,
            family="qwen3_asr",
        )

    def prepare(self, options: DecodeRequest) -> PreparedRequest:
        """As `SpeechModel.prepare`; `previous` is the system's turn: the prompt, and words to expect."""
        refuse_unsupported(self.name, self.capabilities, options)
        given = (text.strip() for text in (options.prompt, options.hotwords))
        system = self.tokenizer.system("\n".join(text for text in given if text))
        self.check_prompt(system)
        return PreparedRequest(options, system)

    def frames_in(self, samples: int) -> int:
        return rows_of(max(samples, SHORTEST) // HOP)

    def cost(self, samples: int, beam: int = 1) -> BatchCost:
        """As `SpeechModel.cost`: keys and values of the prompt and of the hypotheses with their logits, the
        encoder's way, and the widest layer of the language model's over the prompt."""
        frames, size, text = self.frames_in(samples), self.dtype.size, self.config.text
        a_token = 2 * text.num_hidden_layers * text.num_key_value_heads * text.head_dim * size
        own = beam * (min(self.config.limit, frames) * a_token + 16 * text.vocab_size)
        audio = 8 * self.config.audio.encoder_ffn_dim + 9 * self.config.audio.downsample_hidden_size
        widest = max(audio, 4 * text.intermediate_size)
        return BatchCost(frames, frames * (a_token + widest * size) + own)

    def ask(
        self,
        encoded: Sequence[mx.array],
        prepared: Sequence[PreparedRequest],
        languages: Sequence[str | None],
    ) -> list[Question]:
        """As `AttentionModel.ask`: in the language that is known, or each of those to choose among; else the
        answer names one."""
        questions = []
        for window, request, known in zip(encoded, prepared, languages, strict=True):
            given = known or request.request.pinned
            codes = (given,) if given else request.request.candidates or (None,)
            tokens = [self.tokenizer.prompt(len(window), request.previous, code) for code in codes]
            questions.append(
                Question(
                    tuple(
                        Prompt(row, limit=self.config.limit, language=code)
                        for row, code in zip(tokens, codes, strict=True)
                    )
                )
            )
        return questions

    def is_text(self, token: int) -> bool:
        return token < len(self.tokenizer.pieces)

    def opening(self, tokens: Sequence[int]) -> Opening:
        """As `AttentionModel.opening`: `language German<asr_text>`."""
        length = self.tokenizer.opening(tokens)
        named, _ = parse_output(self.tokenizer.spell(tokens[:length]))
        return Opening(length, CODES.get((named or "").lower()))

    def judge(
        self,
        window: Window,
        readings: Sequence[PromptAnswer],
        question: Question,  # noqa: ARG002 - the protocol's
        samples: NDArray[np.float32],
    ) -> WindowOutcome:
        """As `AttentionModel.judge`: the surest answer's, which is no loop if one is none."""
        if is_steady(samples):
            return WindowOutcome("silent")
        best = max(range(len(readings)), key=lambda at: (readings[at].ended, readings[at].mean))
        verdict = judge_answer(window, readings[best], samples)
        return WindowOutcome(verdict.outcome, verdict.kept, verdict.again, best)

    def log_probabilities(self, heard: HeardWindow) -> NDArray[np.float32]:
        """As the search kept them, if it kept those of just these tokens."""
        if len(heard.log_probs) == len(heard.tokens):
            return np.array(heard.log_probs, np.float32)
        return super().log_probabilities(heard)
