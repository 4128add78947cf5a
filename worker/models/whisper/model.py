"""A loaded Whisper: samples of windows to encoder frames, and the decoder head that a search drives.

Knows neither chunks nor jobs. A model belongs to the thread that made it.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.models.whisper.artifacts import WhisperArtifacts, open_folder
from worker.models.whisper.config import (
    ENCODER_FRAMES,
    FRAME_SECONDS,
    LANGUAGE_CODES,
    SpecialTokens,
)
from worker.models.whisper.decoder import WhisperHead
from worker.models.whisper.encoder import WhisperEncoder
from worker.models.whisper.features import HOP, log_mel
from worker.models.whisper.layers import is_cpu
from worker.models.whisper.rules import WhisperRules
from worker.models.whisper.state import EncodedBatch, EncodedWindow


@dataclass(frozen=True, slots=True)
class Languages:
    """What is spoken in a window: the likeliest code, and each code's probability among the languages."""

    best: str
    probabilities: dict[str, float]


class WhisperModel:
    """Encoder, decoder head, tokenizer and rules of one model."""

    def __init__(self, artifacts: WhisperArtifacts, dtype: mx.Dtype) -> None:
        self.name, self.files = artifacts.name, artifacts.files
        self.dims, self.dtype = artifacts.dims, dtype
        self.ids = SpecialTokens(self.dims.n_vocab)
        self.tokenizer, self.settings = artifacts.tokenizer, artifacts.settings
        self.encoder = WhisperEncoder(self.dims, artifacts.tensors, dtype)
        self.head = WhisperHead(self.dims, artifacts.tensors, dtype, self.settings.alignment_heads)
        self.rules = WhisperRules(self.ids, self.settings)
        mx.eval(self.encoder.parameters, self.head.parameters)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights in memory."""
        return sum(array.nbytes for array in (*self.encoder.parameters, *self.head.parameters))

    @property
    def frame_seconds(self) -> float:
        """Seconds from one encoder frame to the next."""
        return FRAME_SECONDS

    @property
    def cross_nbytes(self) -> int:
        """Bytes of an utterance's cross keys and values."""
        return 2 * self.dims.n_text_layer * ENCODER_FRAMES * self.dims.n_text_state * self.dtype.size

    def encode(self, windows: Sequence[NDArray[np.float32]]) -> list[EncodedWindow]:
        """Windows of at most 30 s, each [N] float32 at 16 kHz in -1 ... 1. Raises AudioTooLong.

        A CPU takes them one by one: the bits of a product depend on its number of rows there.
        """
        encoded: list[EncodedWindow] = []
        size = 1 if is_cpu() else len(windows)
        for first in range(0, len(windows), max(size, 1)):
            part = [np.asarray(window, np.float32) for window in windows[first : first + size]]
            lengths = np.array([len(window) // HOP // 2 for window in part], np.int32)
            mel = mx.array(np.stack([log_mel(window, self.dims.n_mels) for window in part]))
            frames = self.encoder(mel)
            cross = self.head.cross_memory(frames)
            mx.eval(frames, cross)
            batch = EncodedBatch(frames, lengths, cross)
            encoded += [EncodedWindow(batch, index) for index in range(len(part))]
        return encoded

    def detect_languages(self, encoded: Sequence[EncodedWindow]) -> list[Languages]:
        """The language of each window: a softmax over the language tokens behind sot. A model that knows
        English alone answers English."""
        if not self.ids.multilingual:
            return [Languages("en", {"en": 1.0}) for _ in encoded]
        logits = self.head.logits_after(encoded, [[self.ids.sot]] * len(encoded))
        spoken = logits[:, self.ids.first_language : self.ids.translate]
        answers = []
        for row in np.array(mx.softmax(spoken, axis=-1)):
            codes = LANGUAGE_CODES[: self.ids.languages]
            shares = dict(zip(codes, map(float, row), strict=True))
            answers.append(Languages(codes[int(row.argmax())], shares))
        return answers

    def no_speech(
        self, encoded: Sequence[EncodedWindow], prompts: Sequence[Sequence[int]]
    ) -> NDArray[np.float32]:
        """The probability that nothing is spoken, float32 [B]: behind the sot of each prompt, before any
        rule."""
        cut = [prompt[: list(prompt).index(self.ids.sot) + 1] for prompt in prompts]
        shares = mx.softmax(self.head.logits_after(encoded, cut), axis=-1)
        return np.array(shares[:, self.ids.no_speech])


def default_dtype() -> mx.Dtype:
    """float16 on a GPU; float32 on a CPU, where 16-bit products are computed one by one."""
    return mx.float32 if is_cpu() else mx.float16


def load_whisper(folder: str | Path, dtype: mx.Dtype | None = None) -> WhisperModel:
    """Loads a model's folder in any of the layouts that `artifacts` knows.

    Raises UnknownModel, ModelUnreadable or WeightsMismatch.
    """
    return WhisperModel(open_folder(Path(folder).expanduser()), dtype or default_dtype())


def compression_ratio(text: str) -> float:
    """How much zlib makes of a text's UTF-8; loops compress well. 0 for no text."""
    raw = text.encode()
    return len(raw) / len(zlib.compress(raw)) if raw else 0.0
