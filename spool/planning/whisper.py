"""A Whisper's sizes, and the operations of a window: encoder, cross keys and values, tokens of each
hypothesis.

A multiply-add is two operations. Every window is 30 s whatever is in it, so it costs 1500 encoder frames.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WINDOW_SECONDS = 30.0
WINDOW_FRAMES = 1500
FEATURE_ROWS = 3000
HEAD_WIDTH = 64


@dataclass(frozen=True, slots=True)
class WhisperShape:
    """Sizes in numbers of values; a head is 64 wide."""

    name: str
    mels: int
    width: int
    encoder_layers: int
    decoder_layers: int
    vocabulary: int = 51865

    @property
    def encoder_weights(self) -> int:
        """Matrices of the encoder and the convolutions."""
        return self.encoder_layers * 12 * self.width**2 + 3 * self.width * (self.mels + self.width)

    @property
    def step_weights(self) -> int:
        """What one step of the decoder reads: its layers' matrices and the token table."""
        return self.decoder_layers * 14 * self.width**2 + self.vocabulary * self.width

    @property
    def cross_values(self) -> int:
        """Numbers of a window's cross keys and values."""
        return 2 * self.decoder_layers * WINDOW_FRAMES * self.width

    @property
    def encoder_operations(self) -> float:
        """Of one window: L (24 d² T + 4 T² d), the convolutions before them."""
        d, t = self.width, WINDOW_FRAMES
        convolutions = 6 * FEATURE_ROWS * self.mels * d + 6 * t * d * d
        return float(self.encoder_layers * (24 * d * d * t + 4 * t * t * d) + convolutions)

    @property
    def cross_operations(self) -> float:
        """Of one window's cross keys and values."""
        return float(4 * self.decoder_layers * self.width**2 * WINDOW_FRAMES)

    def token_operations(self, position: float) -> float:
        """Of one token of one hypothesis behind `position` others."""
        attention = 4 * (WINDOW_FRAMES + position) * self.width
        return self.decoder_layers * (28 * self.width**2 + attention) + 2.0 * self.vocabulary * self.width


KNOWN_WHISPERS: Mapping[str, WhisperShape] = {
    shape.name: shape
    for shape in (
        WhisperShape("tiny", 80, 384, 4, 4),
        WhisperShape("base", 80, 512, 6, 6),
        WhisperShape("small", 80, 768, 12, 12),
        WhisperShape("medium", 80, 1024, 24, 24),
        WhisperShape("distil-large-v3", 128, 1280, 32, 2, 51866),
        WhisperShape("large-v3-turbo", 128, 1280, 32, 4, 51866),
        WhisperShape("large-v3", 128, 1280, 32, 32, 51866),
        WhisperShape("large", 80, 1280, 32, 32),
        WhisperShape("turbo", 128, 1280, 32, 4, 51866),
    )
}


def known_whisper(model: str) -> WhisperShape | None:
    """The shape that a name with `whisper` in it names: the longest of the known sizes in it."""
    name = model.lower()
    if "whisper" not in name and "distil-large" not in name:
        return None
    sizes = sorted((size for size in KNOWN_WHISPERS if size in name), key=len)
    return KNOWN_WHISPERS[sizes[-1]] if sizes else None


def whisper_of_config(tree: Mapping[str, Any], name: str) -> WhisperShape | None:
    """The shape in a `config.json` of OpenAI's, mlx-community's or Hugging Face's layout; None where it tells
    no sizes, as CTranslate2's. Raises KeyError, TypeError or ValueError where it tells some of them."""
    if "n_audio_state" in tree:
        keys = ("n_mels", "n_audio_state", "n_audio_layer", "n_text_layer", "n_vocab")
    elif tree.get("model_type") == "whisper":
        keys = ("num_mel_bins", "d_model", "encoder_layers", "decoder_layers", "vocab_size")
    else:
        return None
    shape = WhisperShape(name, *(int(tree[key]) for key in keys))
    if min(shape.mels, shape.width, shape.encoder_layers, shape.decoder_layers, shape.vocabulary) < 1:
        raise ValueError("a size is below one")
    return shape
