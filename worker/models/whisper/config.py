"""A Whisper model's dimensions, its special tokens and what its repository says about decoding.

Reads Hugging Face's names, OpenAI's (as mlx-community has them) and CTranslate2's. Knows no weights and no
text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spool.errors import ModelUnreadable
from worker.models.configuration import in_file, require, require_size

ENCODER_FRAMES = 1500
SAMPLES_A_FRAME = 320
FRAME_SECONDS = 0.02
# Silence behind the sound that the encoder sees at least: with less of it the decoder loops (LOG.md).
SILENCE_FRAMES = 400
# Frames that contexts are multiples of: few sizes, so that a GPU's batch has windows of one.
CONTEXT_STEP = 128
TIME_STEP = 0.02
HEAD_WIDTH = 64
MAX_INITIAL_TIME = 50  # the first time token is at most 1.0 s
MAX_NEW_TOKENS = 224
MAX_PROMPT = 223  # previous text and hotwords together
NO_SPEECH_THRESHOLD = 0.6
VOCABULARIES = (51864, 51865, 51866)

# In the order of their tokens (openai-whisper, tokenizer.py); Cantonese is large-v3's alone.
LANGUAGE_CODES = tuple(
    """
    en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt
    la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc
    ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue
    """.split()  # noqa: SIM905 - a table of a hundred words
)
TASKS = ("transcribe", "translate")

# (layer, head) whose cross attention follows time (openai-whisper, __init__.py), by decoder layers, heads and
# vocabulary; where a repository names none.
ALIGNMENT_HEADS: Mapping[tuple[int, int, int], tuple[tuple[int, int], ...]] = {
    (4, 6, 51864): ((1, 0), (2, 0), (2, 5), (3, 0), (3, 1), (3, 2), (3, 3), (3, 4)),
    (6, 8, 51865): ((3, 1), (4, 2), (4, 3), (4, 7), (5, 1), (5, 2), (5, 4), (5, 6)),
    (32, 20, 51866): (
        (7, 0), (10, 17), (12, 18), (13, 12), (16, 1), (17, 14), (19, 11), (21, 4), (24, 1), (25, 6),
    ),
    (4, 20, 51866): ((2, 4), (2, 11), (3, 3), (3, 6), (3, 11), (3, 14)),
}  # fmt: skip


def context_frames(samples: int) -> int:
    """Encoder frames of a window of so many samples: its sound and the silence behind it."""
    wanted = samples // SAMPLES_A_FRAME + SILENCE_FRAMES
    return min(-(-wanted // CONTEXT_STEP) * CONTEXT_STEP, ENCODER_FRAMES)


@dataclass(frozen=True, slots=True)
class WhisperDims:
    """OpenAI's ModelDimensions."""

    n_mels: int
    n_audio_ctx: int
    n_audio_state: int
    n_audio_head: int
    n_audio_layer: int
    n_vocab: int
    n_text_ctx: int
    n_text_state: int
    n_text_head: int
    n_text_layer: int


HUGGING_FACE_NAMES = {
    "n_mels": "num_mel_bins",
    "n_audio_ctx": "max_source_positions",
    "n_audio_state": "d_model",
    "n_audio_head": "encoder_attention_heads",
    "n_audio_layer": "encoder_layers",
    "n_vocab": "vocab_size",
    "n_text_ctx": "max_target_positions",
    "n_text_state": "d_model",
    "n_text_head": "decoder_attention_heads",
    "n_text_layer": "decoder_layers",
}


def parse_dims(config: Mapping[str, Any], source: str) -> WhisperDims:
    """The dimensions in a Hugging Face or OpenAI configuration. Raises ModelUnreadable where no Whisper has
    such dimensions."""
    names = HUGGING_FACE_NAMES if "d_model" in config else {each: each for each in HUGGING_FACE_NAMES}
    with in_file(source):
        dims = WhisperDims(**{size: require_size(name, config.get(name)) for size, name in names.items()})
        require("n_vocab", dims.n_vocab, *VOCABULARIES)
        require("n_mels", dims.n_mels, 80, 128)
        require("n_audio_ctx", dims.n_audio_ctx, ENCODER_FRAMES)
        require("n_text_state", dims.n_text_state, dims.n_audio_state)
        require("n_audio_state", dims.n_audio_state, HEAD_WIDTH * dims.n_audio_head)
        require("n_text_state", dims.n_text_state, HEAD_WIDTH * dims.n_text_head)
    return dims


def is_whisper(config: Mapping[str, Any]) -> bool:
    """Whether a configuration is that of a Whisper, in any layout."""
    return config.get("model_type") == "whisper" or "n_audio_state" in config or "suppress_ids" in config


def is_multilingual(config: Mapping[str, Any]) -> bool:
    """Whether a Hugging Face or OpenAI configuration is that of a Whisper that detects languages."""
    size = config.get("vocab_size", config.get("n_vocab"))
    return is_whisper(config) and size in VOCABULARIES and SpecialTokens(size).multilingual


class SpecialTokens:
    """Special tokens, all derived from the vocabulary's size: 51864 English only, 51865 multilingual, 51866
    large-v3 and its children.

    eot: end of text; every text token is below it. sot: start of transcript. first_language: English; those
    of the other `codes` follow. translate, transcribe: the tasks. sot_prev: previous text follows. no_speech:
    nothing is spoken in the window. no_timestamps: no times are wanted. time: <|0.00|>; one more each 0.02 s.
    """

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self.multilingual = vocabulary >= 51865
        languages = vocabulary - 51765 - self.multilingual
        self.codes = LANGUAGE_CODES[:languages] if self.multilingual else ("en",)
        self.eot = 50257 if self.multilingual else 50256
        self.sot, self.first_language = self.eot + 1, self.eot + 2
        self.translate = self.first_language + languages
        behind = range(self.translate + 1, self.translate + 7)
        self.transcribe, self.sot_lm, self.sot_prev, self.no_speech, self.no_timestamps, self.time = behind

    def prompt(
        self,
        language: str = "en",
        task: str = "transcribe",
        *,
        timestamps: bool = True,
        previous: Sequence[int] = (),
    ) -> list[int]:
        """The tokens before the first sampled one. previous: text tokens, the last 223 of which are kept."""
        tokens = [self.sot_prev, *previous[-MAX_PROMPT:]] if previous else []
        tokens.append(self.sot)
        if self.multilingual:
            tokens.append(self.first_language + self.codes.index(language))
            tokens.append(self.translate if task == "translate" else self.transcribe)
        return tokens if timestamps else [*tokens, self.no_timestamps]


@dataclass(frozen=True, slots=True)
class DecodingSettings:
    """What a repository says about decoding.

    suppress: ids that are never sampled. suppress_first: ids that are not sampled first. alignment_heads:
    (layer, head) pairs whose cross attention follows time.
    """

    suppress: tuple[int, ...]
    suppress_first: tuple[int, ...]
    alignment_heads: tuple[tuple[int, int], ...]


def parse_settings(
    config: Mapping[str, Any], dims: WhisperDims, suppress: Sequence[int], blank: int
) -> DecodingSettings:
    """Settings of a `generation_config.json` or a CTranslate2 `config.json`; what is not in it is derived.

    suppress, blank: OpenAI's set of symbols and the token of one space, from the tokenizer. Raises
    ModelUnreadable for a token or a head that the model does not have.
    """
    ids = SpecialTokens(dims.n_vocab)
    named = config.get("suppress_ids", config.get("suppress_tokens"))
    first = config.get("suppress_ids_begin", config.get("begin_suppress_tokens"))
    # -1 stands for OpenAI's set.
    tokens = suppress if named is None or -1 in named else named
    always = (ids.transcribe, ids.translate, ids.sot, ids.sot_prev, ids.sot_lm, ids.no_speech)
    settings = DecodingSettings(
        suppress=tuple(sorted({*tokens, *always})),
        suppress_first=(blank, ids.eot) if first is None else tuple(first),
        alignment_heads=_alignment_heads(config.get("alignment_heads"), dims),
    )
    for token in (*settings.suppress, *settings.suppress_first):
        if not isinstance(token, int) or not 0 <= token < dims.n_vocab:
            raise ModelUnreadable(f"{token!r} is no token of a vocabulary of {dims.n_vocab}")
    for layer, head in settings.alignment_heads:
        if not (0 <= layer < dims.n_text_layer and 0 <= head < dims.n_text_head):
            raise ModelUnreadable(f"no alignment head ({layer}, {head}) in this decoder")
    return settings


def _alignment_heads(named: object, dims: WhisperDims) -> tuple[tuple[int, int], ...]:
    if isinstance(named, list) and named:
        return tuple((int(layer), int(head)) for layer, head in named)
    known = ALIGNMENT_HEADS.get((dims.n_text_layer, dims.n_text_head, dims.n_vocab))
    if known is not None:
        return known
    upper = range(dims.n_text_layer // 2, dims.n_text_layer)
    return tuple((layer, head) for layer in upper for head in range(dims.n_text_head))
