"""Qwen3-ASR's tokens: byte-level BPE with Qwen's split of a text, and the tokens that order it."""

from collections.abc import Sequence

import tokenizers

from spool.errors import ModelUnreadable
from worker.models.artifacts.hub_folder import TOKENIZER, HubFolder
from worker.models.base import TokenSpan
from worker.models.qwen3_asr.config import QwenConfig
from worker.models.qwen3_asr.output import LANGUAGES, MARKER, parse_output
from worker.models.tokenizers.bytes import ByteTokenizer, read_vocabulary, split_wide

AUDIO = "<|audio_pad|>"
TIMESTAMP = "<timestamp>"
BEGIN, END = "<|im_start|>", "<|im_end|>"
OPEN, CLOSE = "<|audio_start|>", "<|audio_end|>"
VOCABULARY, MERGES = "vocab.json", "merges.txt"
# Qwen2's: digits stand one by one (transformers, convert_slow_tokenizer.py).
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


class QwenTokenizer(ByteTokenizer):
    """Text tokens are below those that were added; `special` has the numbers of these."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, config: QwenConfig, source: str) -> None:
        texts = tokenizer.get_vocab_size(with_added_tokens=False)
        super().__init__(tokenizer, texts, config.text.vocab_size)
        is_aligner = config.classes is not None
        own = {TIMESTAMP: config.timestamp_token} if is_aligner else dict.fromkeys((BEGIN, END, MARKER))
        self.check({AUDIO: config.audio_token, OPEN: None, CLOSE: None, **own}, source)
        self._check_numbers(config, source, texts)
        # An added token that is not special stays in the text.
        added = tokenizer.get_added_tokens_decoder().items()
        self._bytes |= {number: token.content.encode() for number, token in added if not token.special}

    def _check_numbers(self, config: QwenConfig, source: str, texts: int) -> None:
        """Raises ModelUnreadable where answers end with no token here, or the network does not have one."""
        wrong = next((end for end in config.ends if end not in self.special.values()), None)
        if wrong is not None and config.classes is None:
            raise ModelUnreadable(
                f"{source}: answers end with token {wrong} by eos_token_id, which is no special token here: "
                "the tokenizer or generation_config.json is another model's"
            )
        largest = max(texts - 1, *self.special.values())
        if largest >= config.text.vocab_size:
            raise ModelUnreadable(
                f"{source}: a tokenizer of another vocabulary: it has token {largest}, the model has "
                f"{config.text.vocab_size} tokens"
            )

    def system(self, context: str) -> tuple[int, ...]:
        """The system's turn, a text that the words are expected in."""
        return tuple(self.encode(f"system\n{context}"))

    def prompt(self, rows: int, system: Sequence[int], language: str | None) -> tuple[int, ...]:
        """What stands before an answer to so many rows of sound. language: a code, None for what the model
        finds out."""
        named = [] if language is None else self.encode(f"language {LANGUAGES[language]}")
        return (
            *(self.special[BEGIN], *system, self.special[END], *self.encode("\n")),
            *(self.special[BEGIN], *self.encode("user\n")),
            *(self.special[OPEN], *[self.special[AUDIO]] * rows, self.special[CLOSE]),
            *(self.special[END], *self.encode("\n"), self.special[BEGIN], *self.encode("assistant\n")),
            *(named and (*named, self.special[MARKER])),
        )

    def opening(self, tokens: Sequence[int]) -> int:
        """How many of an answer's tokens come before its text: up to the first `<asr_text>`."""
        marker = self.special[MARKER]
        return list(tokens).index(marker) + 1 if marker in tokens else 0

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of an answer, without the language that it names."""
        return parse_output(self.spell(tokens))[1]

    def words(self, tokens: Sequence[int], language: str | None = None) -> list[TokenSpan]:
        """As `ByteTokenizer.words`; characters written without spaces stand alone in any language."""
        return split_wide(self, tokens, super().words(tokens, language))


def read_tokenizer(folder: HubFolder, config: QwenConfig) -> QwenTokenizer:
    """The tokenizer of a folder: tokenizer.json, or as older folders have it vocab.json and merges.txt.
    Raises ModelUnreadable."""
    vocabulary = folder.path / VOCABULARY
    if (folder.path / TOKENIZER).is_file() or not vocabulary.is_file():
        return QwenTokenizer(folder.tokenizer, config, str(folder.path / TOKENIZER))
    added = folder.tokenizer_config.get("added_tokens_decoder") or {}
    tokenizer = read_vocabulary(vocabulary, folder.path / MERGES, SPLIT, added)
    return QwenTokenizer(tokenizer, config, str(vocabulary))
