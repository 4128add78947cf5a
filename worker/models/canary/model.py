"""A loaded Canary: what its prompts ask for, and the times that it writes.

Knows neither chunks nor jobs. A model belongs to the thread that made it.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from spool.domain.transcript import Word
from worker.models.attention.conformer_model import UNTIMED_OVERLAP, ConformerAttentionModel
from worker.models.attention.generation import Generation
from worker.models.attention.nemo_decoder import NemoDecoder
from worker.models.attention.prompt_slots import prompt_slots, prompt_tokens
from worker.models.attention.stamps import StampedWord, time_stamped_words
from worker.models.base import Capabilities, Independent, PreparedRequest, refuse_unsupported
from worker.models.base_attention import EndRule, HeardWindow, TimedText, TokenTimes
from worker.models.canary.config import CanaryConfig
from worker.models.canary.tokenizer import END, PAD
from worker.models.conformer.frames import FrameEncoder
from worker.models.front_ends.log_mel import FeatureExtractor
from worker.models.nemo.model import NemoModel
from worker.models.requests import DecodeRequest
from worker.models.tokenizers.special import SpecialTokens

STAMPED = "<|timestamp|>"
# Trained on up to 40 s (Puvvada et al. 2024).
TIMED_CHUNKS = Independent(aim=30.0, max=40.0)
UNTIMED_CHUNKS = Independent(aim=30.0, max=40.0, overlap=UNTIMED_OVERLAP)


class CanaryModel(ConformerAttentionModel):
    """Encoder, decoder head and tokenizer of one model, and its aligner where it has one."""

    def __init__(
        self,
        config: CanaryConfig,
        frames: FrameEncoder[FeatureExtractor],
        head: NemoDecoder,
        tokenizer: SpecialTokens,
        *,
        rows: int,
        name: str,
        files: Mapping[str, str],
        aligner: NemoModel | None = None,
        generation: Generation | None = None,
    ) -> None:
        """generation: what decides an answer in transformers' layout, None for NeMo's rules."""
        self.config, self.aligner, self._generation = config, aligner, generation
        ends = (tokenizer.special(END), tokenizer.special(PAD))
        end_rule = EndRule(ends, "kept") if generation is None else generation.end_rule
        seconds = config.frame_seconds
        super().__init__(
            frames, head, tokenizer, end_rule, rows=rows, name=name, files=files, frame_seconds=seconds
        )

    def limit(self, frames: int, prompt: int) -> int:
        if self._generation is not None:
            return self._generation.limit(prompt)
        return frames + self.config.delta - prompt

    @cached_property
    def stamps_itself(self) -> bool:
        """Whether its times are tokens of the answer. canary-1b-v2 has such tokens in its one tokenizer, but
        ends at once when it is asked for them."""
        return self.tokenizer.is_aggregate and self.tokenizer.has(STAMPED) and bool(self.tokenizer.stamps)

    @cached_property
    def capabilities(self) -> Capabilities:
        options = {"language", "task", "translate_to", "prompt", "punctuation"}
        timing: Literal["alignment", "tokens", "none"] = "tokens" if self.stamps_itself else "none"
        if self.aligner is not None:
            timing = "alignment"
        return Capabilities(
            decoders=frozenset({"greedy", "beam"}),
            languages=self.tokenizer.languages,
            tasks=frozenset({"transcribe", "translate"}),
            timing=timing,
            options=frozenset(options | {"timestamps"} if self.stamps_itself else options),
            chunking=self.chunking,
        )

    @property
    def chunking(self) -> Independent:
        return TIMED_CHUNKS if self.stamps_itself or self.aligner is not None else UNTIMED_CHUNKS

    def prepare(self, options: DecodeRequest) -> PreparedRequest:
        """As `SpeechModel.prepare`; `previous` is the whole prompt."""
        refuse_unsupported(self.name, self.capabilities, options)
        asked = options.timestamps == "on" or (options.timestamps == "auto" and not options.single)
        form, tokenizer = self.config.prompt_format, self.tokenizer
        slots = prompt_slots(form, self.config.defaults, options, stamped=asked and self.stamps_itself)
        tokens = prompt_tokens(form, slots, tokenizer)
        if self._generation is not None:
            tokens = self._generation.begin(tokens)
        self.check_prompt(tokens)
        return PreparedRequest(options, tokens)

    def writes_times(self, prompt: Sequence[int]) -> bool:
        stamp = self.tokenizer.special(STAMPED) if self.tokenizer.has(STAMPED) else -1
        return stamp in prompt and bool(self.tokenizer.stamps)

    def place_words(self, heard: HeardWindow, text: list[int], shares: NDArray[np.float32]) -> TimedText:
        if not heard.prompt.timestamps:
            return super().place_words(heard, text, shares)
        seconds = heard.window.seconds
        words = time_stamped_words(heard.tokens, self.tokenizer, self.frame_seconds, seconds)
        starts = np.full(len(text) + 1, seconds, np.float32)
        places = {at: index for index, at in enumerate(text)}
        spoken = []
        for word in words:
            own = [places[at] for at in range(word.first, word.last) if at in places]
            starts[own] = np.linspace(word.start, word.end, len(own), endpoint=False)
            spoken.append(_word(word, shares[own]))
        starts = np.minimum.accumulate(starts[::-1])[::-1]
        return TimedText(TokenTimes(starts, shares), tuple(spoken))


def _word(word: StampedWord, shares: NDArray[np.float32]) -> Word:
    return Word(text=word.text, start=word.start, end=word.end, confidence=float(shares.min(initial=1.0)))
