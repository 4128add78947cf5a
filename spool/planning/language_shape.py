"""The sizes of a model whose language model reads embedded sound (Qwen3-ASR), and the operations they take.

A multiply-add is two operations. Reads no file.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spool.planning.weight_bits import WHOLE, Weighed

ROWS_PER_SECOND = 13
WINDOW_ROWS = 104
PROMPT = 20
"""Tokens around the sound in a prompt."""
_STEM = (64 * 50, 32 * 25, 16 * 13)
"""Places of the three convolutions' outputs in a second."""


@dataclass(frozen=True, slots=True)
class LanguageShape(Weighed):
    """Sizes in numbers of values: of the audio tower, and of the language model, whose `groups` of keys and
    values serve `heads` of queries, each `head_width` wide."""

    name: str
    audio_layers: int
    audio_width: int
    audio_inner: int
    layers: int
    width: int
    inner: int
    channels: int = 480
    heads: int = 16
    groups: int = 8
    head_width: int = 128
    vocabulary: int = 151_936
    bits: int = WHOLE

    @property
    def sizes(self) -> tuple[int, ...]:
        """Those that must be at least one."""
        text = (self.layers, self.width, self.inner, self.heads, self.groups, self.head_width)
        return (self.audio_layers, self.audio_width, self.audio_inner, self.channels, *text, self.vocabulary)

    @property
    def tower_weights(self) -> int:
        """Matrices of the audio tower and the projector."""
        width, channels = self.audio_width, self.channels
        stem = 18 * channels**2 + 16 * channels * width
        layer = 4 * width**2 + 2 * width * self.audio_inner
        return stem + self.audio_layers * layer + width * (width + self.width)

    @property
    def layer_weights(self) -> int:
        """Matrices of the language model's layers."""
        attention = 2 * self.width * (self.heads + self.groups) * self.head_width
        return self.layers * (attention + 3 * self.width * self.inner)

    @property
    def encoder_weights(self) -> int:
        """Of the tower and, for a prompt, of the language model."""
        return self.tower_weights + self.layer_weights

    @property
    def step_kept(self) -> int:
        return self.vocabulary * self.width

    @property
    def step_weights(self) -> int:
        """What one step reads: the layers' matrices and the token table."""
        return self.layer_weights + self.vocabulary * self.width

    @property
    def position_values(self) -> int:
        """Numbers of one position's keys and values."""
        return 2 * self.layers * self.groups * self.head_width

    def count_rows(self, seconds: float) -> int:
        """Rows of embedded sound."""
        return max(1, math.ceil(seconds * ROWS_PER_SECOND))

    def tower_operations(self, seconds: float) -> float:
        """Of one utterance without attention."""
        places = math.ceil(seconds)
        stem = 18 * self.channels * (_STEM[0] + self.channels * (_STEM[1] + _STEM[2]))
        rows = 2 * (self.tower_weights - 18 * self.channels**2)
        return float(places * stem + self.count_rows(seconds) * rows)

    def tower_attention(self, seconds: float) -> float:
        """Of one utterance, within windows of eight seconds."""
        rows = self.count_rows(seconds)
        return float(4 * rows * min(rows, WINDOW_ROWS) * self.audio_width * self.audio_layers)

    def prompt_operations(self, seconds: float) -> float:
        """Of one utterance's prompt, without attention."""
        return 2.0 * (self.count_rows(seconds) + PROMPT) * self.layer_weights

    def token_attention(self, position: float) -> float:
        """Of one token behind `position` others."""
        return 4.0 * position * self.heads * self.head_width * self.layers


# The audio width of 0.6B is not in its makers' table; 14 heads of 64 are assumed.
KNOWN_LANGUAGE: Mapping[str, LanguageShape] = {
    shape.name: shape
    for shape in (
        LanguageShape("qwen3-asr-0.6b", 18, 896, 3584, 28, 1024, 3072),
        LanguageShape("qwen3-asr-1.7b", 24, 1024, 4096, 28, 2048, 6144),
        LanguageShape("qwen3-forcedaligner-0.6b", 24, 1024, 4096, 28, 1024, 3072, vocabulary=5000),
    )
}


def find_language(model: str) -> LanguageShape | None:
    """The shape of a published model, by a name that contains its own."""
    return next((shape for name, shape in KNOWN_LANGUAGE.items() if name in model.lower()), None)


def language_shape(tree: Mapping[str, Any], name: str) -> LanguageShape | None:
    """The shape by a configuration, in transformers' layout or the original, with transformers' values for
    what is left out; None if it is no such model's."""
    if tree.get("model_type") != "qwen3_asr":
        return None
    top = tree.get("thinker_config") or tree
    audio, text = top.get("audio_config") or {}, top.get("text_config") or {"hidden_size": 2048}
    heads = int(text.get("num_attention_heads", 32))
    return LanguageShape(
        name,
        int(audio.get("encoder_layers", 24)),
        int(audio.get("d_model", 1024)),
        int(audio.get("encoder_ffn_dim", 4096)),
        int(text.get("num_hidden_layers", 32)),
        int(text.get("hidden_size", 4096)),
        int(text.get("intermediate_size", 22_016)),
        channels=int(audio.get("downsample_hidden_size", 480)),
        heads=heads,
        groups=int(text.get("num_key_value_heads") or heads),
        head_width=int(text.get("head_dim", 128)),
        vocabulary=int(text.get("vocab_size", 151_936)),
    )
