"""Whisper's tokens, read from `tokenizer.json`: what stands behind sot_prev, and which are never speech.

What the ids mean that are no text is `config.SpecialTokens`'.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import tokenizers

from spool.errors import ModelUnreadable
from worker.models.artifacts.hub_folder import HubFolder
from worker.models.base import is_wide
from worker.models.configuration import read_json
from worker.models.tokenizers.bytes import ByteTokenizer
from worker.models.whisper.config import MAX_PROMPT, SpecialTokens

# Symbols that stand for sounds or typesetting, never for words (openai-whisper, non_speech_tokens).
SYMBOLS = (
    *'"#()*+/:;<=>@[\\]^_`{|}~「」『』',
    *("<<", ">>", "<<<", ">>>", "--", "---", "-(", "-[", "('", '("', "((", "))", "(((", ")))"),
    *("[[", "]]", "{{", "}}", "♪♪", "♪♪♪"),
)
NOTES = "♩♪♫♬♭♮♯"


class WhisperTokenizer(ByteTokenizer):
    """Text tokens are below `ids.eot`."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, ids: SpecialTokens) -> None:
        super().__init__(tokenizer, ids.eot, ids.vocabulary)
        self.ids = ids

    @classmethod
    def from_file(cls, path: Path, vocabulary: int) -> "WhisperTokenizer":
        """Reads `tokenizer.json` of a model of that many tokens.

        Raises ModelUnreadable where it is missing, broken or of another vocabulary.
        """
        ids = SpecialTokens(vocabulary)
        tokenizer = HubFolder(path.parent).tokenizer
        added = {each["content"]: each["id"] for each in read_json(path).get("added_tokens", [])}
        expected = {
            "<|endoftext|>": ids.eot,
            "<|startoftranscript|>": ids.sot,
            "<|transcribe|>": ids.transcribe,
            "<|notimestamps|>": ids.no_timestamps,
        }
        for content, token in expected.items():
            if added.get(content) != token:
                raise ModelUnreadable(
                    f"{path}: a tokenizer of another vocabulary: {content} is {added.get(content)}, "
                    f"in a model of {vocabulary} tokens it is {token}"
                )
        reader = cls(tokenizer, ids)
        if missing := reader.missing:
            raise ModelUnreadable(
                f"{path}: a tokenizer of another vocabulary: {missing} of {ids.eot} are missing"
            )
        return reader

    @cached_property
    def blank_token(self) -> int:
        """The token of one space."""
        return self.encode(" ")[0]

    def encode_words(self, text: str) -> list[int]:
        """The text tokens of words as Whisper writes them: behind a space, in scripts that have one."""
        return self.encode(text if is_wide(text) else f" {text}")

    def previous(self, text: str = "", hotwords: str = "", carried: Sequence[int] = ()) -> list[int]:
        """What stands behind sot_prev, at most 223 tokens: hotwords, then a prompt, then the tokens of what
        was said before. What does not fit is cut from the oldest of the text, hotwords last."""
        favoured = self.encode(" " + hotwords.strip())[:MAX_PROMPT] if hotwords.strip() else []
        before = [*(self.encode(" " + text.strip()) if text.strip() else []), *carried]
        room = MAX_PROMPT - len(favoured)
        return favoured + (before[-room:] if room else [])

    def non_speech_tokens(self) -> list[int]:
        """OpenAI's set of tokens that are never speech, special tokens not included."""
        tokens = {self.encode(" -")[0], self.encode(" '")[0]}
        for symbol in (*SYMBOLS, *NOTES):
            for encoded in (self.encode(symbol), self.encode(" " + symbol)):
                if len(encoded) == 1 or symbol in NOTES:
                    tokens.add(encoded[0])
        return sorted(tokens)
