"""A loaded Canary: samples of windows to encoder frames, and the decoder head that a search drives.

Knows neither chunks nor jobs. A model belongs to the thread that made it.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spool.domain.transcript import Word
from spool.errors import InvalidRequest
from worker.models.attention.rules import NoRules
from worker.models.attention.stamps import StampedWord, time_stamped_words
from worker.models.attention.state import EncodedWindow
from worker.models.attention.windows import judge_answer
from worker.models.base import (
    BatchCost,
    Capabilities,
    HeadName,
    Independent,
    ModelInfo,
    PreparedRequest,
    refuse_unsupported,
)
from worker.models.base_attention import (
    NO_OPENING,
    EndRule,
    HeardWindow,
    Opening,
    Prompt,
    Question,
    Reading,
    TimedText,
    TokenTimes,
    Verdict,
    Window,
)
from worker.models.canary.config import CanaryConfig
from worker.models.canary.decoder import CanaryHead, round_vocabulary
from worker.models.canary.prompt import prompt_slots, prompt_tokens
from worker.models.canary.tokenizer import CanaryTokenizer
from worker.models.conformer.frames import BYTES_A_FRAME, FrameEncoder
from worker.models.front_ends.log_mel import FeatureExtractor
from worker.models.nemo.model import NemoModel
from worker.models.requests import DecodeRequest
from worker.models.weights import parameter_bytes, precision

STAMPED = "<|timestamp|>"
# Trained on up to 40 s (Puvvada et al. 2024).
TIMED_CHUNKS = Independent(aim=30.0, max=40.0)
# Without word times nobody can say which chunk has a word of the overlap: there is next to none.
UNTIMED_CHUNKS = Independent(aim=30.0, max=40.0, overlap=0.1)


class CanaryModel:
    """Encoder, decoder head and tokenizer of one model, and its aligner where it has one."""

    def __init__(
        self,
        config: CanaryConfig,
        frames: FrameEncoder[FeatureExtractor],
        head: CanaryHead,
        tokenizer: CanaryTokenizer,
        *,
        name: str,
        files: Mapping[str, str],
        aligner: NemoModel | None = None,
    ) -> None:
        self.config, self.frames, self.head = config, frames, head
        self.tokenizer, self.name, self.files, self.aligner = tokenizer, name, dict(files), aligner
        self.dtype = frames.dtype
        self.heads: Mapping[HeadName, CanaryHead] = {"attention": head}
        self.rules = NoRules(round_vocabulary(tokenizer.vocabulary_size))
        self.end_rule = EndRule((tokenizer.eos, tokenizer.pad), "kept")
        mx.eval(head.parameters)

    @cached_property
    def stamps_itself(self) -> bool:
        """Whether its times are tokens of the answer. canary-1b-v2 has such tokens in its one tokenizer, but
        ends at once when it is asked for them."""
        return self.tokenizer.is_aggregate and self.tokenizer.has(STAMPED) and bool(self.tokenizer.stamps)

    @cached_property
    def capabilities(self) -> Capabilities:
        languages = self.tokenizer.languages
        options = {"language", "task", "translate_to", "prompt", "punctuation"}
        timing: Literal["alignment", "tokens", "none"] = "tokens" if self.stamps_itself else "none"
        if self.aligner is not None:
            timing = "alignment"
        return Capabilities(
            decoders=frozenset({"greedy", "beam"}),
            languages=languages,
            tasks=frozenset({"transcribe", "translate"}),
            timing=timing,
            options=frozenset(options | {"timestamps"} if self.stamps_itself else options),
            chunking=self.info.chunking,
        )

    @cached_property
    def info(self) -> ModelInfo:
        """Which weights these are."""
        return ModelInfo(
            name=self.name,
            sha256=self.files["weights"],
            heads=("attention",),
            frame_seconds=self.config.frame_seconds,
            size=self.nbytes,
            files=dict(self.files),
            chunking=TIMED_CHUNKS if self.stamps_itself or self.aligner is not None else UNTIMED_CHUNKS,
            **precision(self.dtype),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the weights in memory, the aligner's among them."""
        own = parameter_bytes(self.frames.encoder) + sum(array.nbytes for array in self.head.parameters)
        return own + (self.aligner.size if self.aligner is not None else 0)

    def prepare(self, options: DecodeRequest) -> PreparedRequest:
        """As `SpeechModel.prepare`; `previous` is the whole prompt."""
        refuse_unsupported(self.name, self.capabilities, options)
        asked = options.timestamps == "on" or (options.timestamps == "auto" and not options.single)
        form, tokenizer = self.config.prompt_format, self.tokenizer
        slots = prompt_slots(form, self.config.defaults, options, stamped=asked and self.stamps_itself)
        tokens = prompt_tokens(form, slots, tokenizer)
        most = self.head.max_tokens // 2
        if len(tokens) > most:
            raise InvalidRequest(f"prompt: it has {len(tokens)} tokens; {self.name} takes at most {most}")
        return PreparedRequest(options, tokens)

    def frames_in(self, samples: int) -> int:
        return self.frames.frames_of(samples)

    def cost(self, samples: int, beam: int = 1) -> BatchCost:
        """As `SpeechModel.cost`: the encoder's way, cross keys and values, and those of the hypotheses with
        their logits."""
        frames, size, decoder = self.frames_in(samples), self.dtype.size, self.config.decoder
        tokens = min(self.head.max_tokens, frames + self.config.delta)
        per_token = 2 * decoder.num_layers * decoder.hidden_size * size
        own = beam * (tokens * per_token + 16 * self.tokenizer.vocabulary_size)
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

    def ask(
        self,
        encoded: Sequence[EncodedWindow],
        prepared: Sequence[PreparedRequest],
        languages: Sequence[str | None],  # noqa: ARG002 - the model detects none
    ) -> list[Question]:
        """As `AttentionModel.ask`: one prompt a window."""
        stamp = self.tokenizer.special(STAMPED) if self.tokenizer.has(STAMPED) else -1
        questions = []
        for window, request in zip(encoded, prepared, strict=True):
            tokens = request.previous
            most = min(self.head.max_tokens, window.length + self.config.delta) - len(tokens)
            timed = stamp in tokens and bool(self.tokenizer.stamps)
            language = request.request.pinned
            prompt = Prompt(tokens, timestamps=timed, limit=max(most, 1), language=language)
            questions.append(Question((prompt,)))
        return questions

    def is_text(self, token: int) -> bool:
        return self.tokenizer.is_text(token)

    def opening(self, tokens: Sequence[int]) -> Opening:  # noqa: ARG002 - it is all text
        return NO_OPENING

    def judge(
        self,
        window: Window,
        readings: Sequence[Reading],
        question: Question,  # noqa: ARG002 - the protocol's
        samples: NDArray[np.float32],
    ) -> Verdict:
        return judge_answer(window, readings[0], samples)

    def unread(
        self,
        heard: HeardWindow,  # noqa: ARG002 - the protocol's
        times: TokenTimes,  # noqa: ARG002
    ) -> tuple[Window, ...]:
        """As `AttentionModel.unread`: nothing; its words need not have times of their own."""
        return ()

    def time(self, windows: Sequence[HeardWindow]) -> list[TimedText]:
        """As `AttentionModel.time`: by the stamps where they were asked for."""
        return [self._time_words(each) for each in windows]

    def _time_words(self, heard: HeardWindow) -> TimedText:
        text = [at for at, token in enumerate(heard.tokens) if self.is_text(token)]
        if not text:
            return TimedText(TokenTimes.even(np.zeros(0, np.float32), heard.window.seconds), ())
        # A window by itself: what is printed must not know the batch.
        logs = self.head.log_probabilities(heard.encoded, heard.prompt.tokens, [heard.tokens])
        shares = np.exp(np.array(logs[0]))[text].astype(np.float32)
        seconds = heard.window.seconds
        if not heard.prompt.timestamps:
            return TimedText(TokenTimes.even(shares, seconds), None)
        words = time_stamped_words(heard.tokens, self.tokenizer, self.config.frame_seconds, seconds)
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
