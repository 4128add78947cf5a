"""A loaded Whisper: samples of windows to encoder frames, and the decoder head that a search drives.

Knows neither chunks nor jobs. A model belongs to the thread that made it.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spool.domain.transcript import ChunkLanguage
from worker.models.attention.alignment import align_tokens
from worker.models.attention.decoder import AttentionDecoder
from worker.models.attention.languages import Languages
from worker.models.attention.layers import is_cpu
from worker.models.attention.model import DecodingModel
from worker.models.attention.state import EncodedBatch, EncodedWindow
from worker.models.attention.unread import find_unread
from worker.models.attention.words import find_words
from worker.models.base import (
    BatchCost,
    Capabilities,
    Independent,
    ModelFiles,
    PreparedRequest,
    refuse_unsupported,
)
from worker.models.base_attention import (
    EndRule,
    HeardWindow,
    Prompt,
    PromptAnswer,
    Question,
    TimedText,
    TokenTimes,
    Unread,
    Window,
    WindowOutcome,
)
from worker.models.front_ends.whisper_mel import log_mel
from worker.models.requests import DecodeRequest
from worker.models.tokenizers.bytes import UNSPACED
from worker.models.weights import default_dtype
from worker.models.whisper.artifacts import WhisperArtifacts, checkpoint_of, open_folder
from worker.models.whisper.config import (
    ENCODER_FRAMES,
    FRAME_SECONDS,
    NO_SPEECH_THRESHOLD,
    SAMPLES_A_FRAME,
    TASKS,
    SpecialTokens,
    context_frames,
    is_whisper,
)
from worker.models.whisper.network import WhisperEncoder, decoder_of
from worker.models.whisper.rules import WhisperOptions, WhisperRules
from worker.models.whisper.windows import judge

# A window costs 30 s whatever is in it: fuller chunks are fewer, and cut at fewer places. Of 2,055 words of a
# book and of turns 282 are wrong instead of 297 with the defaults (tiny.en, greedy; ops/bench/LOG.md).
CHUNKING = Independent(aim=25.0, tail=3.0)


class WhisperModel(DecodingModel):
    """Encoder, decoder head, tokenizer and rules of one model."""

    head: AttentionDecoder
    frame_seconds = FRAME_SECONDS

    def __init__(self, artifacts: WhisperArtifacts, dtype: mx.Dtype) -> None:
        self.name, self.files, self.bits = artifacts.name, artifacts.files, artifacts.bits
        self.dims, self.dtype = artifacts.dims, dtype
        self.ids = SpecialTokens(self.dims.n_vocab)
        self.tokenizer, self.settings = artifacts.tokenizer, artifacts.settings
        self.encoder = WhisperEncoder(self.dims, artifacts.tensors, dtype)
        self.head = decoder_of(self.dims, artifacts.tensors, dtype, self.settings.alignment_heads)
        self.rules, self.end_rule = WhisperRules(self.ids, self.settings), EndRule((self.ids.eot,))
        mx.eval(self.encoder.parameters, self.head.parameters)

    @property
    def chunking(self) -> Independent:
        return CHUNKING

    @cached_property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            decoders=frozenset({"greedy", "beam"}),
            languages=frozenset(self.ids.codes),
            tasks=frozenset(TASKS if self.ids.multilingual else ["transcribe"]),
            timing="alignment",
            options=frozenset({"language", "task", "timestamps", "prompt", "hotwords", "audio_context"}),
            chunking=CHUNKING,
            detects=self.ids.multilingual,
            family="whisper",
        )

    def encode(
        self, windows: Sequence[NDArray[np.float32]], full: Sequence[bool] | None = None
    ) -> list[EncodedWindow]:
        """As `AudioContextModel.encode`. Windows of at most 30 s, each [N] float32 at 16 kHz in -1 ... 1.
        Raises AudioTooLong."""
        asked = full or [False] * len(windows)
        mels = [
            log_mel(np.asarray(window, np.float32), self.dims.n_mels)[
                : 2 * self.frames_in(len(window), full=own)
            ]
            for window, own in zip(windows, asked, strict=True)
        ]
        return self.encode_mels(mels, [len(window) // SAMPLES_A_FRAME for window in windows])

    def encode_mels(self, mels: Sequence[NDArray[np.float32]], lengths: Sequence[int]) -> list[EncodedWindow]:
        """Log-mels of windows, each [2 * context, mels], with each one's encoder frames of real sound.

        A CPU takes them one by one: the bits of a product depend on its number of rows there.
        """
        if not mels:
            return []
        counts = np.array(lengths, np.int32)
        context = np.array([len(mel) // 2 for mel in mels], np.int32)
        if is_cpu():
            batch = self.head.gather((self.encoder(mx.array(mel[None])) for mel in mels), counts, context)
        else:
            together = self._encode_together(mels)
            batch = EncodedBatch(together, counts, self.head.cross_memory(together), context)
            mx.eval(together, batch.cross)
        return [EncodedWindow(batch, index) for index in range(len(mels))]

    def _encode_together(self, mels: Sequence[NDArray[np.float32]]) -> mx.array:
        """Those of one length at a time -> [B, longest context, d], zeros behind a shorter context."""
        rows: dict[int, mx.array] = {}
        longest = max(map(len, mels))
        for length in sorted({len(mel) for mel in mels}):
            own = [index for index, mel in enumerate(mels) if len(mel) == length]
            frames = self.encoder(mx.array(np.stack([mels[index] for index in own])))
            rows |= zip(own, mx.pad(frames, [(0, 0), (0, (longest - length) // 2), (0, 0)]), strict=True)
        return mx.stack([rows[index] for index in range(len(mels))])

    def frames_in(self, samples: int, *, full: bool = False) -> int:
        return ENCODER_FRAMES if full else context_frames(samples)

    def cost(self, samples: int, beam: int = 1) -> BatchCost:
        """As `SpeechModel.cost`: cross keys and values, those of the hypotheses of both prompts, and the
        encoder's hidden states with their widening; bytes as of a full window, which may be asked for."""
        keys = (ENCODER_FRAMES + 2 * beam * self.head.max_tokens) * self.head.bytes_a_token
        hidden = 8 * ENCODER_FRAMES * self.dims.n_audio_state * self.dtype.size
        return BatchCost(context_frames(samples), keys + hidden)

    def prepare(self, options: DecodeRequest) -> PreparedRequest:
        refuse_unsupported(self.name, self.capabilities, options)
        return PreparedRequest(options, tuple(self.tokenizer.previous(options.prompt, options.hotwords)))

    def ask(
        self,
        encoded: Sequence[EncodedWindow],
        prepared: Sequence[PreparedRequest],
        languages: Sequence[str | None],
    ) -> list[Question]:
        """As `AttentionModel.ask`: without times, and where that gives a reason with them, unless one of them
        is asked for; in two languages where the model is in doubt."""
        given = [known or request.request.pinned for known, request in zip(languages, prepared, strict=True)]
        unknown = [window for window, language in zip(encoded, given, strict=True) if language is None]
        detected = iter(self.detect_languages(unknown))
        questions = []
        for request, language in zip(prepared, given, strict=True):
            options = request.request
            if language is None:
                spoken = next(detected).among(options.candidates)
                codes, likely = spoken.asked, spoken.likely
            else:
                codes, likely = (language,), ()
            plain, timed = (
                tuple(
                    self._prompt(request, code, timestamps)
                    for code in (codes[:1] if options.single else codes)
                )
                for timestamps in (False, True)
            )
            first = timed if options.timestamps == "on" else plain
            others = timed if options.timestamps == "auto" and not options.single else ()
            questions.append(Question(first, languages=likely, others=others))
        shares = self.no_speech(encoded, [each.prompts[0].tokens for each in questions]).tolist()
        return [replace(each, no_speech=share) for each, share in zip(questions, shares, strict=True)]

    def _prompt(self, request: PreparedRequest, language: str, timestamps: bool) -> Prompt:
        task, previous = request.request.task, request.previous
        tokens = self.ids.prompt(language, task, timestamps=timestamps, previous=previous)
        return Prompt(tuple(tokens), WhisperOptions(timestamps), timestamps, language=language)

    def is_text(self, token: int) -> bool:
        return token < self.ids.eot

    def judge(
        self,
        window: Window,
        readings: Sequence[PromptAnswer],
        question: Question,
        samples: NDArray[np.float32],
    ) -> WindowOutcome:
        return judge(window, readings, question.no_speech, samples, self.ids)

    def time(self, windows: Sequence[HeardWindow]) -> list[TimedText]:
        """As `AttentionModel.time`: by the cross attention, as openai-whisper's find_alignment, told without
        what was said before and by text alone."""
        texts = [[token for token in each.tokens if self.is_text(token)] for each in windows]
        prompts = [self._untimed(each.prompt) for each in windows]
        trails = [
            each.trail if (prompt, text) == ([*each.prompt.tokens], [*each.tokens]) else None
            for each, prompt, text in zip(windows, prompts, texts, strict=True)
        ]
        encoded = [each.encoded for each in windows]
        times = align_tokens(self.head, encoded, prompts, texts, FRAME_SECONDS, trails)
        timed = []
        for each, text, spoken in zip(windows, texts, times, strict=True):
            spoken = spoken or TokenTimes.even(np.zeros(len(text), np.float32), each.window.seconds)
            language = each.prompt.language
            spans = self.tokenizer.words(text, language)
            words = find_words(spans, spoken, each.samples, spaced=language not in UNSPACED)
            timed.append(TimedText(spoken, words))
        return timed

    def _untimed(self, prompt: Prompt) -> list[int]:
        """The tokens of a prompt for an answer without times and without what was said before."""
        tokens = prompt.tokens[prompt.tokens.index(self.ids.sot) :]
        return [*tokens, self.ids.no_timestamps] if prompt.timestamps else [*tokens]

    def unread(self, heard: HeardWindow, times: TokenTimes) -> Unread:
        text = [token for token in heard.tokens if self.is_text(token)]
        spelled = (any(map(str.isalnum, self.tokenizer.pieces[token])) for token in text)
        starts = [float(start) for start, word in zip(times.starts, spelled, strict=False) if word]
        return find_unread(heard.window, heard.samples, starts)

    def detect_languages(self, encoded: Sequence[EncodedWindow]) -> list[Languages]:
        """The language of each window: a softmax over the language tokens behind sot. A model
        that supports only English answers English."""
        if not self.ids.multilingual or not encoded:
            return [Languages({"en": 1.0}) for _ in encoded]
        logits = self.head.logits_after(encoded, [[self.ids.sot]] * len(encoded))
        shares = np.array(mx.softmax(logits[:, self.ids.first_language : self.ids.translate], axis=-1))
        return [Languages(dict(zip(self.ids.codes, row, strict=True))) for row in shares.tolist()]

    def identify_languages(self, samples: Sequence[NDArray[np.float32]]) -> list[ChunkLanguage | None]:
        encoded = self.encode(samples, [True] * len(samples))
        silent = self.no_speech(encoded, [[self.ids.sot]] * len(encoded)) > NO_SPEECH_THRESHOLD
        return [
            None if hush else ChunkLanguage(code=each.best, probabilities=dict(each.likely))
            for each, hush in zip(self.detect_languages(encoded), silent, strict=True)
        ]

    def no_speech(
        self, encoded: Sequence[EncodedWindow], prompts: Sequence[Sequence[int]]
    ) -> NDArray[np.float32]:
        """The probability that nothing is spoken, float32 [B]: behind the sot of each prompt, before any
        rule."""
        cut = [prompt[: list(prompt).index(self.ids.sot) + 1] for prompt in prompts]
        shares = mx.softmax(self.head.logits_after(encoded, cut), axis=-1)
        return np.array(shares[:, self.ids.no_speech])


def load_whisper(folder: str | Path, dtype: mx.Dtype | None = None) -> WhisperModel:
    """Loads a model's folder in any of the layouts that `artifacts` knows.

    Raises UnknownModel, ModelUnreadable or WeightsMismatch.
    """
    return WhisperModel(open_folder(Path(folder).expanduser()), dtype or default_dtype(mx.float16))


class Whisper:
    """The family of OpenAI's Whisper and what was distilled from it."""

    def matches(self, files: ModelFiles) -> bool:
        return is_whisper(files.config) or checkpoint_of(files.path) is not None

    def load(self, files: ModelFiles, dtype: mx.Dtype | None = None) -> WhisperModel:
        return load_whisper(files.path, dtype)
