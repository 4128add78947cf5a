"""A loaded Cohere Transcribe: what its prompts ask for, and where long audio is cut.

Knows neither chunks nor jobs. A model belongs to the thread that made it.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from worker.models.attention.conformer_model import UNTIMED_OVERLAP, ConformerAttentionModel
from worker.models.attention.generation import Generation
from worker.models.attention.nemo_decoder import NemoDecoder
from worker.models.attention.prompt_slots import prompt_slots, prompt_tokens
from worker.models.base import (
    MAX_UTTERANCE_SECONDS,
    Capabilities,
    Independent,
    PreparedRequest,
    refuse_unsupported,
)
from worker.models.base_attention import SAMPLE_RATE, Window
from worker.models.cohere.config import CohereConfig
from worker.models.conformer.frames import FrameEncoder
from worker.models.front_ends.log_mel import FeatureExtractor, Float32
from worker.models.requests import DecodeRequest
from worker.models.tokenizers.pieces import WORD_START
from worker.models.tokenizers.special import SpecialTokens


class CohereModel(ConformerAttentionModel):
    """Encoder, decoder head and tokenizer of one model."""

    def __init__(
        self,
        config: CohereConfig,
        frames: FrameEncoder[FeatureExtractor],
        head: NemoDecoder,
        tokenizer: SpecialTokens,
        generation: Generation,
        *,
        name: str,
        files: Mapping[str, str],
    ) -> None:
        self.config, self._generation = config, generation
        rows, seconds = config.decoder.rows, config.frame_seconds
        super().__init__(
            frames,
            head,
            tokenizer,
            generation.end_rule,
            rows=rows,
            name=name,
            files=files,
            frame_seconds=seconds,
        )

    def limit(self, frames: int, prompt: int) -> int:  # noqa: ARG002 - it goes by tokens alone
        return self._generation.limit(prompt)

    @cached_property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            decoders=frozenset({"greedy", "beam"}),
            languages=self.tokenizer.languages,
            tasks=frozenset({"transcribe"}),
            timing="none",
            options=frozenset({"language", "punctuation"}),
            chunking=self.chunking,
            family="cohere",
        )

    @property
    def chunking(self) -> Independent:
        longest = min(self.config.clip_seconds, MAX_UTTERANCE_SECONDS)
        rest = min(5.0, longest / 4)
        return Independent(longest - rest - UNTIMED_OVERLAP, longest, UNTIMED_OVERLAP, rest)

    def prepare(self, options: DecodeRequest) -> PreparedRequest:
        """As `SpeechModel.prepare`; `previous` is the whole prompt. Without a language it is English."""
        refuse_unsupported(self.name, self.capabilities, options)
        slots = prompt_slots("canary2", {}, options, stamped=False)
        prompt = (self.tokenizer.special(WORD_START), *prompt_tokens("canary2", slots, self.tokenizer))
        return PreparedRequest(options, self._generation.begin(prompt))

    def split(self, samples: NDArray[np.float32]) -> Sequence[Window]:
        """As `SplittingModel.split`, where transformers' CohereAsrFeatureExtractor cuts: of the last seconds
        of a clip at the start of the quietest window, the first of equals."""
        clip, search = (
            round(each * SAMPLE_RATE) for each in (self.config.clip_seconds, self.config.search_seconds)
        )
        windows, start = [], 0
        while start + clip < len(samples):
            first = start + clip - max(search, 1)
            cut = max(first + self._quietest(samples[first : start + clip]), start + 1)
            windows.append(Window(start, cut))
            start = cut
        return [*windows, Window(start, len(samples))]

    def _quietest(self, samples: Float32) -> int:
        """Where the window begins whose mean power is least; the last whole one does not count."""
        size = self.config.level_samples
        if len(samples) <= size:
            return len(samples) // 2
        starts = range(0, len(samples) - size, size)
        power = [np.mean(np.square(samples[at : at + size]), dtype=np.float64) for at in starts]
        return starts[int(np.argmin(np.sqrt(power).astype(np.float32)))]
